"""Rows of the paper's tables: one model each, with the paper's numbers and ours.

*Printed* measurements are the paper's; the others come from results files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..results.groups import ModelMeasurements, average_by_model
from ..results.names import model_label
from ..results.record import Measurement

#: Largest relative difference between two update counts of one model. Tables 11 and 12 distinguish
#: 46.7k and 50k updates.
_UPDATES_TOLERANCE = 0.02


class Row(NamedTuple):
    """One model of a table of the paper: the paper's numbers, and ours by variant of the model."""

    printed: ModelMeasurements
    ours: Sequence[ModelMeasurements] = ()


def measurement_label(measurement: Measurement) -> str:
    """Return the name of a measurement's model, ``ALiBi, L=512``."""
    return model_label(measurement.model.method_name, measurement.model.train_length)


def table_rows(
    printed: Sequence[Measurement],
    ours: Iterable[Measurement],
    joined: bool = False,
    label: Callable[[Measurement], str] = measurement_label,
) -> list[Row]:
    """Return the rows of a table of the paper in its order, with our measurements of each model.

    Args:
        printed: the paper's measurements.
        ours: measurements in the paper's setting on the table's corpus.
        joined: True if each method except ALiBi has only one row, as in Tables 5 and 8.
        label: function that returns the label of a printed measurement's row.
    """
    printed_evaluations = {_evaluation_of(measurement) for measurement in printed}
    ours_in_table = []
    for measurement in ours:
        if _evaluation_of(measurement) in printed_evaluations:
            ours_in_table.append(measurement)
    printed_by_row: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in printed:
        if joined and measurement.model.method_name != "ALiBi":
            name = f"{measurement.model.method_name}, L = evaluation length"
        else:
            name = label(measurement)
        printed_by_row[name].append(measurement)
    return [_table_row(name, members, ours_in_table) for name, members in printed_by_row.items()]


def _evaluation_of(measurement: Measurement) -> tuple[str, int, int]:
    """Return split, length, and stride of a measurement."""
    return (measurement.subset, measurement.length, measurement.stride)


def _table_row(name: str, printed: list[Measurement], ours: list[Measurement]) -> Row:
    """Create a row of a table.

    Args:
        name: label of the row.
        printed: the paper's measurements in the row. They have one position method.
        ours: our measurements of any model.
    """
    method = printed[0].model.method_name
    train_lengths = {measurement.model.train_length for measurement in printed}
    train_length = train_lengths.pop() if len(train_lengths) == 1 else None
    ours_in_row = []
    for measurement in ours:
        # A row of several training lengths has each model at its training length only.
        if train_length is None and measurement.length != measurement.model.train_length:
            continue
        if any(_is_same_model(measurement, in_paper) for in_paper in printed):
            ours_in_row.append(measurement)
    # A row of several training lengths joins models that have the same variant.
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for length in sorted({measurement.model.train_length for measurement in ours_in_row}):
        same_length = [
            measurement for measurement in ours_in_row if measurement.model.train_length == length
        ]
        for model in average_by_model(same_length):
            variants[model.variant] += model.measurements
    our_models = []
    for variant, measurements in variants.items():
        our_models.append(ModelMeasurements(method, train_length, measurements, name, variant))
    printed_model = ModelMeasurements(method, train_length, printed, name, "paper", is_printed=True)
    return Row(printed_model, our_models)


def _is_same_model(measurement: Measurement, printed: Measurement) -> bool:
    """Return True if method, training length, and update count match a printed measurement.

    Args:
        measurement: one of our measurements.
        printed: one of the paper's.
    """
    return (
        measurement.model.method.name_key == printed.model.method.name_key
        and measurement.model.train_length == printed.model.train_length
        and _has_update_count(measurement.model.updates or 0, printed.model.updates)
    )


def _has_update_count(updates: int, printed: int | None) -> bool:
    """Return True if an update count equals the printed one within a tolerance.

    Args:
        updates: update count of our model.
        printed: update count in the paper, or None if the paper does not print it.
    """
    if printed is None:
        return True
    return abs(updates - printed) <= _UPDATES_TOLERANCE * printed
