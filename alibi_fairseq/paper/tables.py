"""The paper's tables with our numbers next to them.

A table or figure of the paper becomes rows (:mod:`.table_rows`), one per model, and grids of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from ..reporting import markdown
from ..reporting.means import mean_of_known
from ..reporting.notes import mark_notes
from ..reporting.row import Point, Row
from ..reporting.table import Column, Table
from ..results.result import Result
from . import published
from .collected_results import CollectedResults
from .comparability import different_units_reason
from .items import Item
from .published import PrintedMeasurement
from .seed_noise import legend, marked_difference
from .speeds import speed_tables
from .table_rows import PaperRow, table_rows

#: Largest number of columns. Grids with more are transposed.
_MAX_COLUMNS = 8
#: Attribute of a result's cost by kind of evaluation speed. The paper has only the first.
_SPEED_ATTRIBUTES = {"batch 1": "tokens_per_second_batch_1", "full batches": "tokens_per_second"}
_SPEEDS = (
    "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; ours: the "
    "machine named in the sources)"
)


def paper_tables(item: Item, collected: CollectedResults) -> list[Table]:
    """Return a table of the paper next to our numbers, which are missing without results.

    A table without perplexities, such as Table 1, is followed by one for each source of our speeds.

    Args:
        item: the table.
        collected: our results.
    """
    if not item.measurements:
        return list(speed_tables(item, collected))
    return item_tables(item, collected.comparable(item.corpus))


def item_tables(
    item: Item, ours: Sequence[Result], source: str = "ours", compare: bool = True
) -> list[Table]:
    """Return the perplexities of a table or figure of the paper next to ours.

    Each model has a line of the paper's numbers, one of ours, and one of their difference. Columns
    are evaluation lengths, or the validation and the test split. Where the paper has speeds of
    evaluation, a second table follows.

    Args:
        item: table, or figure of perplexities.
        ours: our results, as far as the paper's models are concerned.
        source: name of our numbers.
        compare: True for lines of differences and for speeds, False to show only perplexities.
    """
    rows = table_rows(item, ours)
    printed = item.measurements
    columns: Sequence = sorted({measurement.case.length for measurement in printed})
    speed_columns = columns
    if item.has_splits:
        columns = published.SPLITS
        speed_columns = ("valid",)
    lines: list[_Line] = []
    for row in rows:
        lines += _perplexity_lines(row, columns, source, item.corpus if compare else None)
    our_points = [point for row in rows for model in row.ours for point in model.points]
    grids = [_grid(lines, columns, notes=mark_notes(our_points))]
    if not compare:
        return grids
    if any(measurement.words_per_second for measurement in printed):
        speed_lines: list[_Line] = []
        for row in rows:
            speed_lines += _speed_lines(row, speed_columns, source)
        grids.append(_grid(speed_lines, speed_columns, caption=_SPEEDS))
    notes = [*grids[-1].notes, legend(item.corpus), _other_text_note(ours)]
    grids[-1] = replace(grids[-1], notes=[note for note in notes if note])
    return grids


class _Line(NamedTuple):
    """A line of a grid: a model, the source of its numbers, and a text per column."""

    model: str
    source: str
    cells: list[str]


def _grid(
    lines: Sequence[_Line], columns: Sequence, caption: str = "", notes: Sequence[str] = ()
) -> Table:
    """Return a table of lines, each under the name of its model.

    A table of many columns is transposed.

    Args:
        lines: lines of the table; the lines of one model are consecutive.
        columns: evaluation lengths, or other titles of the columns.
        caption: caption of the table.
        notes: sentences below the table.
    """
    if len(columns) > _MAX_COLUMNS:
        transposed = [Column[int]("length", lambda index: str(columns[index]))]
        for line in lines:
            transposed.append(Column(f"{line.model}: {line.source}", line.cells.__getitem__))
        return Table(transposed, range(len(columns)), caption=caption, notes=notes)
    shown = []
    previous = ""
    for line in lines:
        shown.append(line._replace(model=line.model if line.model != previous else ""))
        previous = line.model
    grid = [
        Column[_Line](markdown.CORNER, lambda line: line.model),
        Column[_Line]("", lambda line: line.source),
    ]
    for index, column in enumerate(columns):
        grid.append(Column(str(column), partial(_cell, index)))
    return Table(grid, shown, left=2, caption=caption, notes=notes)


def _cell(index: int, line: _Line) -> str:
    """Return the text of a line in a column."""
    return line.cells[index]


def _points_at(row: Row, columns: Sequence) -> list[Point | None]:
    """Return the point of a row in each column, an evaluation length or a split, or None."""
    # Lengths are integers and splits are strings, so one dict can have both as keys.
    points: dict[int | str, Point] = {}
    for point in row.points:
        points[point.case.length] = point
        points[point.case.split] = point
    return [points.get(column) for column in columns]


def _perplexity_lines(
    row: PaperRow, columns: Sequence, source: str, corpus: str | None
) -> list[_Line]:
    """Return the paper's perplexities of a model, ours, and the difference.

    A perplexity that only we lack is marked as missing. One that the paper also lacks is a dash.

    Args:
        row: the model.
        columns: evaluation lengths or splits.
        source: name of our numbers.
        corpus: corpus of the paper; None for no difference.
    """
    name = row.printed.name
    printed = _points_at(row.printed, columns)
    lines = [_Line(name, "paper", [_perplexity(point, point) for point in printed])]
    for our_source, model in row.named_ours(source):
        pairs = list(zip(_points_at(model, columns), printed, strict=True))
        lines.append(_Line(name, our_source, [_perplexity(*pair) for pair in pairs]))
        if corpus and model.points:
            differences = [marked_difference(corpus, *pair) for pair in pairs]
            lines.append(_Line(name, "difference", differences))
    return lines


def _perplexity(point: Point | None, printed: Point | None) -> str:
    """Format a perplexity that the paper may have printed."""
    if point is None and printed is None:
        return markdown.NOTHING
    return markdown.point(point)


def _speed_lines(row: PaperRow, columns: Sequence, source: str) -> list[_Line]:
    """Return the speeds of a model's evaluation: the paper's at batch size 1, and ours."""
    name = row.printed.name
    cells = []
    for point in _points_at(row.printed, columns):
        speed = point.words_per_second if isinstance(point, PrintedMeasurement) else None
        cells.append(_speed([speed], point, markdown.NOTHING))
    lines = [_Line(name, "paper, batch 1", cells)]
    for our_source, model in row.named_ours(source):
        points = _points_at(model, columns)
        for batch, attribute in _SPEED_ATTRIBUTES.items():
            cells = []
            for point in points:
                results = point.results if point else ()
                speeds = [getattr(result.cost, attribute) for result in results]
                cells.append(_speed(speeds, point, markdown.MISSING))
            lines.append(_Line(name, f"{our_source}, {batch}", cells))
    return lines


def _speed(speeds: Iterable[float | None], point: Point | None, missing: str) -> str:
    """Format the mean speed of seeds, or the reason why there is none."""
    mean = mean_of_known(speeds)
    if mean is not None:
        return f"{mean:.0f}"
    return (point.status if point else "") or missing


def _other_text_note(ours: Iterable[Result]) -> str:
    """Return the reasons for which differences have no mark, or an empty string."""
    reasons = dict.fromkeys(different_units_reason(result) for result in ours)
    listed = markdown.literal("; ".join(reason for reason in reasons if reason))
    if not listed:
        return ""
    return f"No marks: {listed}, so perplexities per token are in different units from the paper's."
