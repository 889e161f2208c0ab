"""Pages and sections, written from templates in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from alibi_fairseq.files import atomic_write
from alibi_fairseq.reporting.page import fill_file


def section(name: str, **slots: object) -> str:
    """Fill the slots of a template of this folder, such as ``six_tests``."""
    return fill_file(Path(__file__).with_name(f"{name}.md"), slots)


def write_page(folder: Path, template: Path, name: str = "README.md", **slots: object) -> Path:
    """Fill the slots of a template, write the page, and return its path."""
    path = folder / name
    with atomic_write(path) as stream:
        stream.write(fill_file(template, slots) + "\n")
    return path


def join_parts(*parts: str) -> str:
    """Join the parts that are not empty."""
    return "\n\n".join(part.rstrip() for part in parts if part)


def bullets(template: Path, slots: Mapping[str, object], width: int) -> str:
    """Fill the slots of a template, and return its paragraphs as a list.

    Args:
        template: the template.
        slots: value of each slot.
        width: largest number of characters of a line.
    """
    indent = "  "
    filled = fill_file(template, slots, width - len(indent))
    items = []
    for paragraph in filled.split("\n\n"):
        items.append("- " + paragraph.replace("\n", f"\n{indent}"))
    return "\n".join(items)
