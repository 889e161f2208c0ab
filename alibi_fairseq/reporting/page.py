"""Pages in Markdown with slots for tables, figures, and values.

The syntax is Mustache's (https://mustache.github.io): ``{{name}}`` is a slot. The text between
``{{#name}}`` and ``{{/name}}`` is left out if the slot is empty, and the text between ``{{^name}}``
and ``{{/name}}`` unless it is.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserInputError

_PART = re.compile(r"\{\{([#^])(\w+)\}\}(.*?)\{\{/\2\}\}", re.DOTALL)
_NAME = re.compile(r"\{\{[#^]?(\w+)\}\}")
_SLOT = re.compile(r"\{\{(\w+)\}\}")
#: First characters of paragraphs whose lines are not filled again: headings, lists, quotes, tables,
#: code, figures, and HTML.
_FIXED = ("#", "-", ">", "1.", "|", "```", "![", "<")


def fill_file(path: Path, slots: Mapping[str, object], width: int = 100) -> str:
    """Fill the slots of a file; see :func:`fill`."""
    return fill(path.read_text(encoding="utf-8"), slots, width)


def fill(template: str, slots: Mapping[str, object], width: int = 100) -> str:
    """Fill the slots of a text in Markdown.

    A paragraph that is only a slot is left out if the slot is empty. The lines of a paragraph with
    values are broken again.

    Args:
        template: text in Markdown.
        slots: value of each slot; empty or False for what there is nothing to say about.
        width: largest number of characters of a line in such a paragraph.

    Raises:
        UserInputError: a slot has no value.
    """
    for name in _NAME.findall(template):
        if name not in slots:
            raise UserInputError(
                f"The template of the page has an unknown slot '{name}'. Choose from "
                f"{', '.join(sorted(slots))}."
            )

    def part(match: re.Match) -> str:
        """Return the text of a part that applies, or nothing."""
        kind, name, text = match.groups()
        is_filled = bool(slots[name])
        return text if is_filled == (kind == "#") else ""

    text = template
    while _PART.search(text):  # parts may contain parts
        text = _PART.sub(part, text)
    paragraphs = []
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        filled = _SLOT.sub(lambda slot: str(slots[slot[1]]), paragraph).strip("\n")
        is_slot = _SLOT.fullmatch(paragraph) is not None
        if _SLOT.search(paragraph) and not is_slot and not filled.startswith(_FIXED):
            filled = textwrap.fill(
                " ".join(filled.split()), width, break_long_words=False, break_on_hyphens=False
            )
        if filled:
            paragraphs.append(filled)
    return "\n\n".join(paragraphs)
