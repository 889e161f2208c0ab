"""Grids with consecutive lines per model: the paper's numbers, ours, and their difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ..reporting import markdown
from ..reporting.rows import Point, Row
from ..reporting.table import Column, Table
from .seed_noise import marked_difference
from .table_rows import PaperRow

#: Largest number of columns. Grids with more are transposed.
_MAX_COLUMNS = 8


class GridLine(NamedTuple):
    """A line of a grid: a model, the source of its numbers, and a text per column."""

    model: str
    source: str
    cells: list[str]


def format_grid(lines: Sequence[GridLine], columns: Sequence, notes: Sequence[str] = ()) -> str:
    """Format lines in Markdown, each under the name of its model.

    A grid of many columns is transposed.

    Args:
        lines: lines of the grid; the lines of one model are consecutive.
        columns: evaluation lengths, or other titles of the columns.
        notes: sentences below the grid.
    """
    if len(columns) > _MAX_COLUMNS:
        transposed = [Column[int]("length", lambda index: str(columns[index]))]
        for line in lines:
            cell = partial(_cell_of_line, line)
            transposed.append(Column(f"{line.model}: {line.source}", cell))
        return markdown.to_markdown([Table(transposed, range(len(columns)), notes=notes)])
    shown = []
    previous = ""
    for line in lines:
        shown.append(line._replace(model=line.model if line.model != previous else ""))
        previous = line.model
    grid = [
        Column[GridLine](markdown.CORNER, lambda line: line.model),
        Column[GridLine]("", lambda line: line.source),
    ]
    for index, column in enumerate(columns):
        grid.append(Column(str(column), partial(_cell_of_column, index)))
    return markdown.to_markdown([Table(grid, shown, left=2, notes=notes)])


def _cell_of_line(line: GridLine, index: int) -> str:
    return line.cells[index]


def _cell_of_column(index: int, line: GridLine) -> str:
    return line.cells[index]


class Side(NamedTuple):
    """One side of a row: the paper's numbers of a model, or ours.

    Attributes:
        source: ``paper``, or the name of our numbers.
        model: numbers of this side.
        printed: the paper's numbers of the model.
    """

    source: str
    model: Row
    printed: Row

    @property
    def is_printed(self) -> bool:
        """True for the paper's own numbers."""
        return self.model is self.printed


def sides_of(rows: Iterable[PaperRow], name: str = "ours") -> Iterator[Side]:
    """Yield the paper's side of each row, then ours, one per variant of the model.

    Our side is empty if nothing has been measured. Models by other authors have only the paper's.

    Args:
        rows: the models.
        name: source of our numbers.
    """
    nothing_measured = Row("", "", None, ())
    for row in rows:
        yield Side("paper", row.printed, row.printed)
        is_by_other_authors = not row.printed.method_name
        if is_by_other_authors:
            continue
        for model in row.ours or [nothing_measured]:
            source = f"{name} ({model.variant})" if model.variant else name
            yield Side(source, model, row.printed)


def by_column(row: Row, columns: Sequence) -> list[Point | None]:
    """Return the point of each column, or None.

    Args:
        row: numbers of one model.
        columns: evaluation lengths or splits.
    """
    # Lengths are integers and splits are strings, so one dict can have both as keys.
    points: dict[int | str, Point] = {}
    for point in row.points:
        points[point.case.length] = point
        points[point.case.split] = point
    return [points.get(column) for column in columns]


def perplexity_grid(
    rows: Iterable[PaperRow], columns: Sequence, name: str = "ours", corpus: str | None = None
) -> str:
    """Format the paper's perplexities and ours.

    A perplexity that only we lack is marked as missing. One that the paper lacks, too, is a dash.

    Args:
        rows: the models.
        columns: evaluation lengths or splits.
        name: source of our numbers.
        corpus: corpus of the paper, which adds lines of differences (default: no such lines).
    """
    lines: list[GridLine] = []
    our_points: list[Point] = []
    for side in sides_of(rows, name):
        printed = by_column(side.printed, columns)
        cells = []
        differences = []
        for point, printed_point in zip(by_column(side.model, columns), printed, strict=True):
            if point is None and printed_point is None:
                cells.append(markdown.NOTHING)
            else:
                cells.append(markdown.point(point))
            if corpus:
                differences.append(marked_difference(corpus, point, printed_point))
        lines.append(GridLine(side.printed.name, side.source, cells))
        if side.is_printed:
            continue
        our_points += side.model.points
        if corpus and side.model.points:
            lines.append(GridLine(side.printed.name, "difference", differences))
    note = markdown.past_end_note(our_points).rstrip()
    return format_grid(lines, columns, [note] if note else [])
