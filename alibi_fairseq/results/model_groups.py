"""Measurements grouped by model, with seeds averaged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

from .labels import METHOD_NAMES, method_order, model_label
from .record import Measurement
from .seeds import AnyMeasurement, average_seeds
from .variants import split_variants

#: Position method, training length, and training options that are the same for all corpora.
ModelKey = tuple[str, int | None, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class ModelMeasurements(Generic[AnyMeasurement]):
    """Measurements of one model: a row of a table or a line of a figure.

    Attributes:
        train_length: training length in tokens; None if the models have several training lengths.
        measurements: the measurements.
        name: name of the model.
        variant: difference from other models of the same name.
        is_printed: True for the paper's numbers.
    """

    position_method: str
    train_length: int | None
    measurements: Sequence[AnyMeasurement]
    name: str = ""
    variant: str = ""
    is_printed: bool = False

    @property
    def key(self) -> ModelKey:
        """Key of the model, which is the same for results on all corpora."""
        options = self.measurements[0].model.options_of_any_corpus
        return self.position_method, self.train_length, options

    @property
    def label(self) -> str:
        """Name and variant of the model."""
        return f"{self.name} ({self.variant})" if self.variant else self.name


def average_by_model(
    measurements: Iterable[Measurement],
) -> list[ModelMeasurements[Measurement]]:
    """Group measurements by model as :func:`group_by_model` does, and average over seeds."""
    averaged = []
    for model in group_by_model(measurements):
        averaged.append(replace(model, measurements=average_seeds(model.measurements)))
    return averaged


def group_by_model(
    measurements: Iterable[AnyMeasurement],
) -> list[ModelMeasurements[AnyMeasurement]]:
    """Group measurements by model, in table order. Of equal measurements, the first is kept.

    Methods without a place in that order, such as those of a plugin, follow the method that comes
    before them in the measurements. Models that differ in more than the seed have separate groups,
    named by the difference. Runs also have separate groups unless they are known to have different
    seeds and the same text.
    """
    by_key: dict[tuple, AnyMeasurement] = {}
    for measurement in measurements:
        by_key.setdefault(measurement.key, measurement)
    groups: dict[tuple[str, int], list[AnyMeasurement]] = defaultdict(list)
    for measurement in by_key.values():
        model = measurement.model
        groups[model.position_method, model.train_length].append(measurement)
    ranks = _method_ranks(method for method, _ in groups)
    models = []
    for method, train_length in sorted(groups, key=lambda group: (ranks[group[0]], group[1])):
        for variant, members in split_variants(groups[method, train_length]).items():
            name = model_label(method, train_length, members[0].model.display_name)
            models.append(ModelMeasurements(method, train_length, members, name, variant))
    return models


def _method_ranks(methods: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the sort key of each method.

    It is the place of the known method, and the number of unknown methods since that method.
    """
    ranks: dict[str, tuple[int, int]] = {}
    known_rank = -1  # before all known methods
    num_unknown = 0
    for method in methods:
        if method in ranks:
            continue
        if method in METHOD_NAMES:
            known_rank, _ = method_order(method)
            num_unknown = 0
        else:
            num_unknown += 1
        ranks[method] = (known_rank, num_unknown)
    return ranks
