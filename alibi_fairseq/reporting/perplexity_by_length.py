"""Tables of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ..results.result import Result
from . import markdown
from .common_conditions import common_conditions, has_several_seed_counts
from .differing_conditions import differing_conditions_table
from .notes import MARKS, PAST_END, mark_notes, marked, undertrained_warning
from .row import Point, Row
from .rows import build_rows
from .table import Column, Table
from .texts import Group, group_by_raw_text, group_by_text


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

    Bits per byte, which are comparable across tokenizers, have their own tables. On binary data,
    the table follows the perplexities of the same group. On raw text, models with different
    tokenizers share one table, and these tables come last.

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
        caption = f"Perplexity on {group.name}"
        points = [point for row in rows for point in row.points]
        show = partial(markdown.point, with_seeds=has_several_seed_counts(points))
        shown_columns = columns
        if for_paper and not columns:
            shown_columns = [*_lengths(of_group), "parameters"]
            if len({_learning_rate(row) for row in rows}) > 1:  # otherwise, the caption states it
                shown_columns.append("learning rate")
        tables.append(_length_table(caption, rows, show, shown_columns))
        has_bits_per_byte = any(point.bits_per_byte is not None for point in points)
        if has_bits_per_byte and not of_group[0].case.is_raw_text:
            tables.append(_bits_per_byte_table(group, rows, columns))
    for group, of_group in group_by_raw_text(results).items():
        tables.append(_bits_per_byte_table(group, build_rows(of_group), columns))
    return tables


def _bits_per_byte_table(group: Group, rows: Sequence[Row], columns: Sequence[str]) -> Table[Row]:
    """Create a table of bits per byte of comparable results."""
    return _length_table(f"Bits per byte on {group.name}", rows, _bits_per_byte, columns)


def available_columns(results: Iterable[Result]) -> list[str]:
    """Return the names that :func:`length_tables` accepts as columns."""
    return [*_lengths(results), *MODEL_COLUMNS]


def _lengths(results: Iterable[Result]) -> list[str]:
    """Return the evaluation lengths of results in increasing order."""
    return [str(length) for length in sorted({result.case.length for result in results})]


def _length_table(
    caption: str,
    rows: Sequence[Row],
    show: Callable[[Point | None], str],
    chosen: Sequence[str],
) -> Table[Row]:
    """Create a table with a row per model and a column per evaluation length.

    Args:
        caption: caption of the table.
        rows: the models.
        show: function that formats a point, or None for a missing one.
        chosen: names of the columns; see :func:`length_tables`.
    """
    of_bytes = show is _bits_per_byte
    points = [point for row in rows for point in row.points]
    names = [str(length) for length in sorted({point.case.length for point in points})]
    if chosen:
        names = [name for name in chosen if name in names or name in MODEL_COLUMNS]
    columns = [Column[Row](markdown.CORNER, lambda row: row.label)]
    for name in names:
        if name in MODEL_COLUMNS:
            columns.append(Column(name, MODEL_COLUMNS[name]))
        else:
            length = int(name)
            loss = partial(_loss_at, length, of_bytes)
            columns.append(Column(name, partial(_length_cell, length, show), loss))
    different = differing_conditions_table(rows)
    if different is not None:
        different = different.without({"lr" if name == "learning rate" else name for name in names})
    shown = [point for point in points if str(point.case.length) in names]
    return Table(
        columns,
        rows,
        caption=caption,
        conditions=common_conditions(rows),
        different=different,
        warning=undertrained_warning(rows),
        notes=mark_notes(shown, (PAST_END,) if of_bytes else MARKS),
    )


def _point_at(length: int, row: Row) -> Point | None:
    """Return the point of a row at an evaluation length, if it has one."""
    for point in row.points:
        if point.case.length == length:
            return point
    return None


def _length_cell(length: int, show: Callable[[Point | None], str], row: Row) -> str:
    """Format the point of a row at a length.

    A point below the training length is not missing, because models are usually evaluated at their
    training length and beyond.
    """
    point = _point_at(length, row)
    if point is None and row.train_length is not None and length < row.train_length:
        return markdown.NOTHING
    return show(point)


def _loss_at(length: int, of_bytes: bool, row: Row) -> float | None:
    """Return the perplexity or the bits per byte of a row at a length."""
    point = _point_at(length, row)
    if point is None:
        return None
    return point.bits_per_byte if of_bytes else point.perplexity


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
    if row.identity is None or "optimization.lr" not in row.identity.series.settings:
        return markdown.NOTHING
    return str(row.identity.series.settings["optimization.lr"])


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


def _bits_per_byte(point: Point | None) -> str:
    """Format bits per byte, or ``missing`` for None."""
    if point is None or point.bits_per_byte is None:
        return markdown.MISSING
    return marked(f"{point.bits_per_byte:.4f}", point, (PAST_END,))
