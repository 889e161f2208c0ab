"""Markdown tables that are also readable as plain text, and formatted numbers."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Sequence

from .notes import marked
from .row import Point
from .table import Table

#: Table cell of a measurement that is possible but has not been made.
MISSING = "missing"
#: Table cell without a value.
NOTHING = "–"
#: Header of the column of models in tables by evaluation length.
CORNER = "trained ↓ evaluated at →"


def literal(text: str) -> str:
    """Escape text so that neither Markdown nor HTML interprets any of it."""
    one_line = " ".join(str(text).split())
    escaped = html.escape(one_line, quote=False)
    # An underscore inside a word is literal in Markdown.
    return re.sub(r"[\\`*\[\]|]|(?<!\w)_|_(?!\w)", r"\\\g<0>", escaped)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Format a Markdown table with padded columns.

    Args:
        headers: one text per column.
        rows: rows of one text per column.
        left: number of columns that are left-aligned; the others are right-aligned.
    """
    columns = []
    for index, column in enumerate(zip(headers, *rows, strict=True)):
        columns.append(_padded_column(column, align_left=index < left))
    text = ""
    for line in zip(*columns, strict=True):
        text += f"| {' | '.join(line)} |\n"
    return text


def _padded_column(column: Sequence[str], align_left: bool) -> list[str]:
    """Pad a header and its cells to one width, and insert the rule below the header."""
    cells = [literal(cell) for cell in column]
    width = max(len(cell) for cell in cells)
    width = max(3, width)
    if align_left:
        rule = "-" * width
        padded = [cell.ljust(width) for cell in cells]
    else:
        rule = "-" * (width - 1) + ":"
        padded = [cell.rjust(width) for cell in cells]
    return [padded[0], rule, *padded[1:]]


def to_markdown(tables: Iterable[Table]) -> str:
    """Format tables in Markdown, each with its caption above and its notes below.

    Consecutive tables with the same conditions, warning, or note state them once: conditions and
    warnings above the first of these tables, notes below the last.
    """
    tables = list(tables)
    parts = []
    stated = ("", "", "")
    for captioned, following in itertools.zip_longest(tables, tables[1:]):
        different = ""
        if captioned.different is not None:
            different = to_markdown([captioned.different])
        above = (sentence(captioned.conditions), different, sentence(captioned.warning))
        for text, earlier in zip(above, stated, strict=True):
            if text and text != earlier:
                parts.append(text)
        stated = above
        body = table(captioned.headers, captioned.cells, captioned.left)
        parts.append(f"{literal(captioned.caption)}:\n\n{body}" if captioned.caption else body)
        for note in captioned.notes:
            if following is None or note not in following.notes:
                parts.append(f"{note}\n")
    return "\n".join(parts)


def sentence(text: str) -> str:
    """Escape a sentence and add its period and a line break; an empty one stays empty."""
    return f"{literal(text)}.\n" if text else ""


def perplexity(value: float) -> str:
    """Format a perplexity with two decimals, as in the paper, or with fewer if it is large."""
    if value >= 1e6:
        return f"{value:.2e}"
    if value >= 1000:
        return f"{value:.0f}"
    return f"{value:.2f}"


def point(shown: Point | None, with_seeds: bool = True) -> str:
    """Format a perplexity, with the spread of averaged seeds.

    Args:
        shown: the point; None for one that has not been measured, which is ``missing``.
        with_seeds: True to state the number of seeds.
    """
    if shown is None:
        return MISSING
    if shown.perplexity is None:
        return shown.status
    text = perplexity(shown.perplexity)
    if shown.spread is not None:
        text += f" ± {perplexity(shown.spread)}"
        if with_seeds:
            text += f" ({shown.seeds} seeds)"
    return marked(text, shown)


def difference(value: float) -> str:
    """Format a difference of perplexities with its sign."""
    if abs(value) >= 1000:
        return f"{value:+.2g}"
    return f"{round(value, 2) + 0.0:+.2f}"  # +0.00 also for a negative rounding error


def thousands(value: float) -> str:
    """Format a number as the paper prints speeds: ``28.3k``, or plain below one thousand."""
    if value >= 1000:
        return f"{value / 1000:.1f}k"
    return f"{value:.0f}"
