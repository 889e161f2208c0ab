"""Rows of tables from results: one per series and reading, with seeds averaged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..positions.display_names import KNOWN_LABELS
from ..positions.spec import MethodNameKey, distinct_labels
from ..results.result import Result, RowKey, group_seeds
from .facts import overrides_text
from .row import Point, Row, model_label
from .row_names import letters, tell_apart


def build_rows(results: Iterable[Result]) -> list[Row]:
    """Return the rows of results on one text or probe, in table order.

    Seeds are averaged as :func:`.results.result.group_seeds` says, and rows of one name are told
    apart by :func:`.row_names.tell_apart`. Methods without a place in the order of tables, such as
    plugin methods, follow the method that comes before them in the results.

    Raises:
        UserInputError: two evaluations of one checkpoint have different values.
    """
    points_by_row: dict[RowKey, list[Point]] = defaultdict(list)
    for (key, case), members in group_seeds(results).items():
        points_by_row[key].append(Point(case, members))
    methods = [points[0].results[0].series.method for points in points_by_row.values()]
    labels = distinct_labels(methods)
    ranks = _method_ranks(method.name_key for method in methods)
    same_name: dict[tuple, list[Row]] = defaultdict(list)
    for method, (key, points) in zip(methods, points_by_row.items(), strict=True):
        row = _make_row(key, points, labels[method])
        same_name[ranks[method.name_key], row.train_length, row.name, row.variant].append(row)
    keyed_rows: list[tuple[tuple, Row]] = []
    unused_letters = letters()
    for (rank, train_length, _, _), rows in same_name.items():
        for row in tell_apart(rows, unused_letters):
            keyed_rows.append(((rank, train_length, row.label), row))
    return [row for _, row in sorted(keyed_rows, key=lambda keyed: keyed[0])]


def _make_row(key: RowKey, points: Iterable[Point], method_label: str) -> Row:
    """Create a row, whose label may be that of others.

    Args:
        key: what its results share.
        points: its points, in any order.
        method_label: label of its method among those of the table.
    """
    in_order = sorted(points, key=_point_order)
    series = key.series
    return Row(
        name=series.label or model_label(method_label, series.train_length),
        method_name=series.method.label,
        train_length=series.train_length,
        points=in_order,
        variant=key.reading.variant or overrides_text(key.reading),
        key=key,
    )


def _point_order(point: Point) -> tuple:
    """Return the sort key of a point."""
    case = point.case
    return (case.length, not case.nonoverlapping, case.stride, case.split)


def _method_ranks(methods: Iterable[MethodNameKey]) -> dict[MethodNameKey, tuple[int, int]]:
    """Return the sort key of each method.

    It is the place of the known method, and the number of unknown methods since that method.
    """
    ranks: dict[MethodNameKey, tuple[int, int]] = {}
    known_rank = -1  # before all known methods
    num_unknown = 0
    for method in methods:
        if method in ranks:
            continue
        if method.label in KNOWN_LABELS:
            known_rank = KNOWN_LABELS.index(method.label)
            num_unknown = 0
        else:
            num_unknown += 1
        ranks[method] = (known_rank, num_unknown)
    return ranks
