"""Markdown: tables that also read well unrendered, and numbers."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from alibi_fairseq.results.measurements import Measurement, is_chance

MISSING = "missing"  # a cell we could measure and have not
NOTHING = "–"  # a cell that does not exist
CORNER = "trained ↓ evaluated at →"
CHANCE = "(chance)"
#: Stands under tables that have such cells.
CHANCE_NOTE = (
    "chance: at least nine tenths of the bits per token of guessing any entry of the dictionary; the "
    "model is untrained or has diverged."
)

#: Marks values of lengths beyond the end of the text.
PAST_END = "†"


def past_end_note(points: Iterable[Measurement]) -> str:
    """Return the note under a table that has marked values, or an empty string."""
    longest = sorted({point.longest_window or 0 for point in points if point.is_past_end})
    if not longest:
        return ""
    tokens = " or ".join(f"{length:,}" for length in longest)
    return (
        f"{PAST_END}: no window is this long, because the text ends before; the longest has {tokens} "
        "tokens, and its value is repeated.\n"
    )


def literal(text: str) -> str:
    """Text that Markdown and HTML show as it is: nothing in a results file is markup."""
    one_line = " ".join(str(text).split())
    escaped = html.escape(one_line, quote=False)
    return re.sub(r"[\\`*\[\]|]|(?<!\w)_|_(?!\w)", r"\\\g<0>", escaped)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table with padded columns, the first ``left`` of them left-aligned."""
    columns = []
    for number, column in enumerate(zip(headers, *rows, strict=True)):
        cells = [literal(cell) for cell in column]
        width = max(3, *map(len, cells))
        if number < left:
            columns.append([cell.ljust(width) for cell in (cells[0], "-" * width, *cells[1:])])
        else:
            rule = "-" * (width - 1) + ":"
            columns.append([cell.rjust(width) for cell in (cells[0], rule, *cells[1:])])
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*columns))


def perplexity(value: float) -> str:
    """Two decimals as in the paper; fewer where they would be noise."""
    if value >= 1e6:
        return f"{value:.2e}"
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def point(measured: Measurement | None) -> str:
    """A perplexity, with its spread where seeds were averaged; ``missing`` if there is none."""
    if measured is None:
        return MISSING
    if measured.perplexity is None:
        return measured.status
    text = perplexity(measured.perplexity)
    if measured.spread is not None:
        text += f" ± {perplexity(measured.spread)} ({measured.seeds} seeds)"
    if measured.is_past_end:
        text += f" {PAST_END}"
    chance = is_chance(measured.perplexity, measured.vocabulary)
    return f"{text} {CHANCE}" if chance else text


def difference(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < 1000 else f"{value:+.2g}"


def thousands(value: float) -> str:
    """Speeds as the paper prints them: 28.3k; plain below one thousand."""
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"
