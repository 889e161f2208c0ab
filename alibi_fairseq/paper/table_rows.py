"""Rows of the paper's tables: one model each, with the paper's numbers and ours.

*Printed* measurements are the paper's; the others come from results files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from alibi_fairseq.results.labels import method_name, model_label
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.model_groups import Series, group_by_model

#: Largest relative difference between two update counts of one model. Tables 11 and 12 distinguish
#: 46.7k and 50k updates.
_UPDATES_TOLERANCE = 0.02


class Row(NamedTuple):
    """One model of a table of the paper: the paper's numbers, and ours by variant of the model."""

    paper: Series
    ours: Sequence[Series] = ()


def point_label(point: Measurement) -> str:
    """Return the name of a measurement's model, ``ALiBi, L=512``."""
    return model_label(point.position_method, point.train_length)


def table_rows(
    printed: Sequence[Measurement],
    ours: Iterable[Measurement],
    joined: bool = False,
    label: Callable[[Measurement], str] = point_label,
) -> list[Row]:
    """Return the rows of a table of the paper in its order, with our measurements of each model.

    Args:
        printed: the paper's measurements.
        ours: measurements in the paper's setting on the table's corpus.
        joined: True if each method except ALiBi has only one row, as in Tables 5 and 8.
        label: function that returns the label of a printed measurement's row.
    """
    cases = {(point.subset, point.length, point.stride) for point in printed}
    usable = [point for point in ours if (point.subset, point.length, point.stride) in cases]
    printed_by_row: dict[str, list[Measurement]] = defaultdict(list)
    for point in printed:
        if joined and point.position_method != "alibi":
            name = f"{method_name(point.position_method)}, L = evaluation length"
        else:
            name = label(point)
        printed_by_row[name].append(point)
    return [_table_row(name, members, usable) for name, members in printed_by_row.items()]


def _table_row(name: str, printed: list[Measurement], ours: list[Measurement]) -> Row:
    """Create a row of a table.

    Args:
        name: label of the row.
        printed: the paper's measurements in the row.
        ours: our measurements of any model.
    """
    method = printed[0].position_method
    train_lengths = {point.train_length for point in printed}
    train_length = train_lengths.pop() if len(train_lengths) == 1 else None
    same_model = []
    for point in ours:
        # A row of several training lengths has each model at its training length only.
        is_in_row = train_length is not None or point.length == point.train_length
        if is_in_row and any(_is_same_model(point, other) for other in printed):
            same_model.append(point)
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for model in group_by_model(same_model):
        variants[model.variant] += model.points
    our_series = [
        Series(method, train_length, points, name, variant) for variant, points in variants.items()
    ]
    paper_series = Series(method, train_length, printed, name, "paper", printed=True)
    return Row(paper_series, our_series)


def _is_same_model(point: Measurement, printed: Measurement) -> bool:
    """Return True if a measurement is of the model of a printed one, and as long trained."""
    return (
        point.position_method == printed.position_method
        and point.train_length == printed.train_length
        and has_update_count(point.updates or 0, printed.updates)
    )


def has_update_count(updates: int, printed: int | None) -> bool:
    """Return True if an update count is the paper's, within a tolerance. None: any count is."""
    return printed is None or abs(updates - printed) <= _UPDATES_TOLERANCE * printed
