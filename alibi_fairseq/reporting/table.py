"""Table that is declared as rows and columns; :mod:`.markdown` and :mod:`.latex` format it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

RowType = TypeVar("RowType")


@dataclass(frozen=True)
class Column(Generic[RowType]):
    """Column of a table.

    Attributes:
        title: header of the column.
        cell: function that returns the text of a row in this column.
        value: function that returns the number of a row, the lowest of which is the best; None for
            a column without a best row.
    """

    title: str
    cell: Callable[[RowType], str]
    value: Callable[[RowType], float | None] | None = None


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

    def without(self, titles: Collection[str]) -> Table[RowType] | None:
        """Return the table without some columns; None if only the names of rows remain."""
        columns = [column for column in self.columns if column.title not in titles]
        if len(columns) == 1:
            return None
        left = min(self.left, len(columns))
        return replace(self, columns=columns, left=left)

    def best_rows(self, column: Column[RowType]) -> set[int]:
        """Return the indices of the rows with the best text of a column, if there are several rows.

        Rows whose texts are equal are equally good.
        """
        if column.value is None or len(self.rows) < 2:
            return set()
        values = {}
        for index, row in enumerate(self.rows):
            value = column.value(row)
            if value is not None:
                values[index] = value
        if not values:
            return set()
        best = column.cell(self.rows[min(values, key=values.__getitem__)])
        return {index for index in values if column.cell(self.rows[index]) == best}
