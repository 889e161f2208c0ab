"""Table that is declared as rows and columns; :mod:`.markdown` and :mod:`.latex` format it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

RowType = TypeVar("RowType")


@dataclass(frozen=True)
class Column(Generic[RowType]):
    """Column of a table.

    Attributes:
        title: header of the column.
        cell: function that returns the text of a row in this column.
    """

    title: str
    cell: Callable[[RowType], str]


@dataclass(frozen=True)
class Table(Generic[RowType]):
    """Table of anything that its columns can show.

    Attributes:
        columns: columns from left to right.
        rows: rows from top to bottom.
        left: number of columns that are left-aligned; the others are right-aligned.
        caption: caption, without a period.
        conditions: what holds for all rows, without a period.
        different: table of the conditions in which the rows differ, if there are any.
        warning: why the rows may say nothing, without a period.
        notes: sentences below the table.
    """

    columns: Sequence[Column[RowType]]
    rows: Sequence[RowType]
    left: int = 1
    caption: str = ""
    conditions: str = ""
    different: Table | None = None
    warning: str = ""
    notes: Sequence[str] = ()

    @property
    def headers(self) -> list[str]:
        """One text per column."""
        return [column.title for column in self.columns]

    @property
    def cells(self) -> list[list[str]]:
        """One text per row and column."""
        return [[column.cell(row) for column in self.columns] for row in self.rows]
