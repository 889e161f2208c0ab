"""Rows of the paper's tables: one model each, with the paper's numbers and ours.

*Printed* measurements are the paper's; ours come from results files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..reporting.row import Row
from ..reporting.rows import build_rows
from ..results.case import Case
from ..results.result import Result
from .items import Item
from .published import PrintedMeasurement

#: Largest relative difference between two update counts of one model. Tables 11 and 12 distinguish
#: 46.7k and 50k updates.
_UPDATES_TOLERANCE = 0.02


class PaperRow(NamedTuple):
    """One model of a table of the paper: the paper's numbers, and ours by variant of the model."""

    printed: Row
    ours: Sequence[Row] = ()

    def named_ours(self, source: str) -> list[tuple[str, Row]]:
        """Return our rows, each with the name of its numbers.

        Without a measurement, a row is empty. Models by other authors have none.

        Args:
            source: name of our numbers.
        """
        if not self.printed.method_name:
            return []
        if not self.ours:
            return [(source, Row("", "", None, ()))]
        named = []
        for row in self.ours:
            named.append((f"{source} ({row.variant})" if row.variant else source, row))
        return named


def table_rows(item: Item, ours: Iterable[Result]) -> list[PaperRow]:
    """Return the rows of a table of the paper in its order, with our results of each model.

    Args:
        item: table, or figure of perplexities.
        ours: results in the paper's setting on the corpus of the item.
    """
    printed = item.all_measurements
    printed_cases = {_windows(measurement.case) for measurement in printed}
    ours_in_table = [result for result in ours if _windows(result.case) in printed_cases]
    printed_by_row: dict[str, list[PrintedMeasurement]] = defaultdict(list)
    for measurement in printed:
        name = measurement.label
        if item.by_method and measurement.method_name != "ALiBi":
            name = f"{measurement.method_name}, L = evaluation length"
        printed_by_row[name].append(measurement)
    return [_table_row(name, members, ours_in_table) for name, members in printed_by_row.items()]


def _windows(case: Case) -> tuple[str, int, int]:
    """Return split, length, and stride."""
    return (case.split, case.length, case.stride)


def _table_row(name: str, printed: list[PrintedMeasurement], ours: list[Result]) -> PaperRow:
    """Create a row from the paper's measurements of one method, and our results of any model."""
    method = printed[0].method_name
    train_lengths = {measurement.train_length for measurement in printed}
    train_length = train_lengths.pop() if len(train_lengths) == 1 else None
    ours_in_row = []
    for result in ours:
        # A row of several training lengths has each model at its training length only.
        if train_length is None and result.case.length != result.series.train_length:
            continue
        if any(_is_same_model(result, in_paper) for in_paper in printed):
            ours_in_row.append(result)
    printed_row = Row(name, method, train_length, printed, "paper", is_printed=True)
    our_rows = build_rows(ours_in_row)
    if train_length is None:
        our_rows = _joined(our_rows)
    return PaperRow(printed_row, [replace(row, name=name) for row in our_rows])


def _joined(rows: Iterable[Row]) -> list[Row]:
    """Join the rows of models of several training lengths that have the same variant."""
    by_variant: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_variant[row.variant].append(row)
    joined = []
    for members in by_variant.values():
        points = [point for row in members for point in row.points]
        joined.append(replace(members[0], train_length=None, points=points))
    return joined


def _is_same_model(result: Result, printed: PrintedMeasurement) -> bool:
    """Return True if method, training length, and update count are those of the paper's model."""
    return (
        printed.method is not None
        and result.series.method.name_key == printed.method.name_key
        and result.series.train_length == printed.train_length
        and _has_update_count(result.updates or 0, printed.updates)
    )


def _has_update_count(updates: int, printed: int | None) -> bool:
    """Return True if an update count is about the printed one, or none is printed."""
    if printed is None:
        return True
    return abs(updates - printed) <= _UPDATES_TOLERANCE * printed
