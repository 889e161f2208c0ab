"""Tables of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..results.result import Result
from . import markdown
from .common_conditions import common_conditions, has_several_seed_counts
from .differing_conditions import differing_conditions_table
from .notes import MARKS, MARKS_OF_BYTES, mark_notes, marked, undertrained_warning
from .row import Point, Row
from .rows import build_rows
from .table import Column, Table
from .texts import TextGroup, group_by_raw_text, group_by_text


def length_table(results: Iterable[Result]) -> str:
    """Format the tables of :func:`length_tables` in Markdown."""
    return markdown.to_markdown(length_tables(results))


def length_tables(
    results: Iterable[Result],
    columns: Sequence[str] = (),
    for_paper: bool = False,
) -> list[Table[Row]]:
    """Return the perplexities by model and length, one table per group of comparable results.

    :func:`.texts.group_by_text` makes these groups.

    Bits per byte, which are comparable across tokenizers, have their own tables: after the
    perplexities of a group on binary data, or at the end for raw text, where models with different
    tokenizers share a table.

    Args:
        results: results of any models on texts.
        columns: evaluation lengths and keys of :data:`MODEL_COLUMNS` to show, in this order. A
            table omits those that it lacks (default: all lengths).
        for_paper: True to add the parameters and different learning rates to the default columns.
    """
    results = list(results)
    tables = []
    for group, of_group in group_by_text(results).items():
        rows = build_rows(of_group)
        shown_columns = columns
        if for_paper and not columns:
            shown_columns = [*_lengths(of_group), "parameters"]
            if len({_learning_rate(row) for row in rows}) > 1:  # otherwise, the caption states it
                shown_columns.append("learning rate")
        tables.append(_length_table(group, rows, shown_columns))
        points = [point for row in rows for point in row.points]
        has_bits_per_byte = any(point.bits_per_byte is not None for point in points)
        if has_bits_per_byte and not of_group[0].case.is_raw_text:
            tables.append(_length_table(group, rows, columns, in_bytes=True))
    for group, of_group in group_by_raw_text(results).items():
        tables.append(_length_table(group, build_rows(of_group), columns, in_bytes=True))
    return tables


def available_columns(results: Iterable[Result]) -> list[str]:
    """Return the names that :func:`length_tables` accepts as columns."""
    return [*_lengths(results), *MODEL_COLUMNS]


def _lengths(results: Iterable[Result]) -> list[str]:
    """Return the evaluation lengths of results in increasing order."""
    return [str(length) for length in sorted({result.case.length for result in results})]


@dataclass(frozen=True)
class LengthColumn:
    """Column of perplexities, or of bits per byte, at one evaluation length.

    Attributes:
        length: the evaluation length.
        in_bytes: True for bits per byte.
        with_seeds: True to state the number of seeds of each perplexity.
    """

    length: int
    in_bytes: bool
    with_seeds: bool

    def cell(self, row: Row) -> str:
        """Return the text of a row.

        A point below the training length is not missing, because models are usually evaluated at
        their training length and beyond.
        """
        point = self._point(row)
        if point is None and row.train_length is not None and self.length < row.train_length:
            return markdown.NOTHING
        if not self.in_bytes:
            return markdown.point(point, self.with_seeds)
        if point is None or point.bits_per_byte is None:
            return markdown.MISSING
        return marked(f"{point.bits_per_byte:.4f}", point, MARKS_OF_BYTES)

    def value(self, row: Row) -> float | None:
        """Return the number of a row, if it has one."""
        point = self._point(row)
        if point is None:
            return None
        return point.bits_per_byte if self.in_bytes else point.perplexity

    def _point(self, row: Row) -> Point | None:
        """Return the point of a row at the evaluation length, if it has one."""
        for point in row.points:
            if point.case.length == self.length:
                return point
        return None


def _length_table(
    group: TextGroup, rows: Sequence[Row], chosen: Sequence[str], in_bytes: bool = False
) -> Table[Row]:
    """Create a table with a row per model and a column per evaluation length.

    Args:
        group: what the results of all rows have in common.
        rows: the models.
        chosen: names of the columns; see :func:`length_tables`.
        in_bytes: True for bits per byte, False for perplexities.
    """
    points = [point for row in rows for point in row.points]
    names = [str(length) for length in sorted({point.case.length for point in points})]
    if chosen:
        names = [name for name in chosen if name in names or name in MODEL_COLUMNS]
    with_seeds = has_several_seed_counts(points)
    columns = [Column[Row](markdown.CORNER, lambda row: row.label)]
    for name in names:
        if name in MODEL_COLUMNS:
            columns.append(Column(name, MODEL_COLUMNS[name]))
        else:
            column = LengthColumn(int(name), in_bytes, with_seeds)
            columns.append(Column(name, column.cell, column.value))
    different = differing_conditions_table(rows)
    if different is not None:
        different = different.without({"lr" if name == "learning rate" else name for name in names})
    shown = [point for point in points if str(point.case.length) in names]
    return Table(
        columns,
        rows,
        caption=f"{'Bits per byte' if in_bytes else 'Perplexity'} on {group.name}",
        conditions=common_conditions(rows),
        different=different,
        warning=undertrained_warning(rows),
        notes=mark_notes(shown, MARKS_OF_BYTES if in_bytes else MARKS),
    )


def _parameters(row: Row) -> str:
    """Format the number of parameters of a model."""
    count = row.results[0].series.facts.parameters
    if count is None:
        return markdown.NOTHING
    return f"{count:,}"


def _updates(row: Row) -> str:
    """Format the update count of a model's checkpoint."""
    at = row.results[0].reading.at
    if at is None:
        return markdown.NOTHING
    return at if isinstance(at, str) else f"{at:,}"


def _learning_rate(row: Row) -> str:
    """Format the peak learning rate of a model."""
    if row.key is None or not row.key.series.settings_known:
        return markdown.NOTHING
    return str(row.key.series.learning_rate)


def _seeds(row: Row) -> str:
    """Format the number of averaged seeds."""
    counts = {point.seeds for point in row.points}
    return ", ".join(str(count) for count in sorted(counts))


#: Columns that describe the model, by header.
MODEL_COLUMNS: dict[str, Callable[[Row], str]] = {
    "parameters": _parameters,
    "learning rate": _learning_rate,
    "updates": _updates,
    "seeds": _seeds,
}
