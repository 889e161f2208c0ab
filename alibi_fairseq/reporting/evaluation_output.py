"""Tables and notes that ``alibi-fairseq eval`` prints: one row per result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ..results.result import Result
from ..results.values import TextValues
from . import markdown
from .common_conditions import common_conditions
from .differing_conditions import differing_conditions_table
from .facts import overrides_text, short_paths
from .loss_by_position import position_tables
from .notes import CHANCE_NOTE, undertrained_warning
from .rows import build_rows
from .table import Column, Table
from .texts import group_by_text

#: Text in place of tables of the loss by position.
NO_LOSS_BY_POSITION = (
    "No loss by position: every length exceeds the text, the models attend only within documents "
    "(--block-diagonal), or the results are of an earlier version."
)


def _overrides(result: Result) -> str | None:
    """Return the options that were changed for the evaluation, or None without any."""
    return overrides_text(result.reading) or None


def _scored_range(result: Result) -> str | None:
    """Return the range of tokens that is scored, or None for all."""
    return result.case.scored if result.case.has_range else None


def _column(
    title: str, value_of: Callable[[Result], Any], format_value: Callable[[Any], str] = str
) -> Column[Result]:
    """Return the column of a value, with a dash for results without it."""

    def cell(result: Result) -> str:
        value = value_of(result)
        return markdown.NOTHING if value is None else format_value(value)

    return Column(title, cell)


#: Columns after that of the checkpoint.
EVALUATION_COLUMNS = (
    _column("positions", attrgetter("series.method.notation")),
    _column("overrides", _overrides),
    _column("trained at", attrgetter("series.train_length")),
    _column("split", attrgetter("case.split")),
    _column("scored", _scored_range),
    _column("L", attrgetter("case.length")),
    _column("S", attrgetter("case.stride")),
    _column("min ctx", attrgetter("values.min_context")),
    _column("mean ctx", attrgetter("values.mean_context"), "{:.1f}".format),
    _column("tokens", attrgetter("values.tokens"), "{:,}".format),
    _column("bits/token", attrgetter("values.loss_bits"), "{:.4f}".format),
    _column("perplexity", attrgetter("values.perplexity"), markdown.perplexity),
    _column("per word", attrgetter("values.word_perplexity"), markdown.perplexity),
    _column("bits/byte", attrgetter("values.bits_per_byte"), "{:.4f}".format),
    _column("tokens/s", attrgetter("cost.tokens_per_second"), "{:,.0f}".format),
    _column("peak MB", attrgetter("cost.peak_memory_mb"), "{:,.0f}".format),
)


def evaluation_table(results: Sequence[Result]) -> str:
    """Return a Markdown table with the columns in which a result has a value."""
    columns = []
    paths = short_paths(result.checkpoint for result in results if result.checkpoint is not None)
    checkpoint = _column("checkpoint", attrgetter("checkpoint"), paths.__getitem__)
    for column in (checkpoint, *EVALUATION_COLUMNS):
        if any(column.cell(result) != markdown.NOTHING for result in results):
            columns.append(column)
    return markdown.to_markdown([Table(columns, results)])


def context_table(results: Sequence[Result], percent: float, strides: Sequence[int | str]) -> str:
    """Return a table of the shortest window whose loss is close to that of the longest.

    There is a row for each checkpoint, split, and requested stride. A result whose stride
    is its length counts for that number and for ``full``.

    Args:
        results: results of checkpoints.
        percent: largest difference of the losses.
        strides: requested strides in tokens; or ``full``.
    """
    losses: dict[tuple, dict[int, float]] = defaultdict(dict)
    for result in results:
        assert isinstance(result.values, TextValues), "the evaluator measured it"
        case = result.case
        for stride in strides:
            tokens = case.length if stride == "full" else stride
            if case.stride != tokens:
                continue
            row = (str(result.checkpoint), case.split, str(stride))
            losses[row][case.length] = result.values.loss_bits
    rows = []
    paths = short_paths(checkpoint for checkpoint, _, _ in losses)
    for (checkpoint, split, stride), loss in losses.items():
        longest = max(loss)
        limit = loss[longest] * (1 + percent / 100)
        shortest_window = min(length for length in loss if loss[length] <= limit)
        rows.append([paths[checkpoint], split, stride, str(shortest_window)])
    return markdown.table(["checkpoint", "split", "S", f"context within {percent:g}%"], rows)


def printed_position_tables(results: Sequence[Result]) -> str:
    """Return the tables of the loss by position, without conditions, or a note without any.

    :func:`evaluation_notes` states the conditions once for all tables.
    """
    tables = []
    for table in position_tables(results):
        tables.append(replace(table, conditions="", different=None))
    return markdown.to_markdown(tables) if tables else f"{NO_LOSS_BY_POSITION}\n"


def evaluation_notes(results: Sequence[Result]) -> str:
    """Return what the models have in common, and notes on what makes perplexities unusable."""
    rows = build_rows(results)
    texts = [markdown.sentence(common_conditions(rows))]
    different = differing_conditions_table(rows)
    if different is not None:
        texts.append(f"\n{markdown.to_markdown([different])}")
    for group in group_by_text(results).values():
        texts.append(markdown.sentence(undertrained_warning(build_rows(group))))
    points = [point for row in rows for point in row.points]
    longest_windows = [point.longest_window or 0 for point in points if point.is_past_end]
    if longest_windows:
        longest = max(longest_windows)
        texts.append(f"Some lengths exceed the text: the longest window has {longest:,} tokens.\n")
    if any(point.is_near_chance for point in points):
        texts.append(f"Some perplexities are near or above {CHANCE_NOTE}\n")
    return "".join(dict.fromkeys(texts))
