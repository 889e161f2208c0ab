"""Markdown tables, as text that also reads well unrendered."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "missing"  # a cell we could measure and have not
NOTHING = "–"  # a cell that does not exist


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table with padded columns.

    Args:
        headers: one text per column.
        rows: as many texts per row as there are columns.
        left: the first so many columns are left-aligned, all others right-aligned.
    """
    for row in rows:
        if len(row) != len(headers):
            raise ValueError(f"a row of {len(row)} cells under {len(headers)} headers: {row}")
    lines = [list(headers), *(list(row) for row in rows)]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(headers))]

    def render(cells: list[str]) -> str:
        padded = (
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join(padded) + " |"

    rule = [
        "-" * width if column < left else "-" * (width - 1) + ":"
        for column, width in enumerate(widths)
    ]
    return "\n".join([render(lines[0]), render(rule), *map(render, lines[1:])]) + "\n"


def perplexity(value: float) -> str:
    """Two decimals as in the paper; fewer where they would be noise."""
    if value >= 1e6:
        return f"{value:.2e}"
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def difference(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < 1000 else f"{value:+.2g}"


def thousands(value: float) -> str:
    """Speeds as the paper prints them: 28.3k; plain below one thousand."""
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"
