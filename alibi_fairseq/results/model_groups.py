"""Measurements grouped by model, with seeds averaged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from alibi_fairseq.results.labels import METHOD_NAMES, method_order, model_label
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.seeds import average_seeds
from alibi_fairseq.results.training_command import options_of_any_corpus
from alibi_fairseq.results.variants import split_variants

#: Position method, training length, and training options that are the same for all corpora.
ModelKey = tuple[str, int | None, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Series:
    """Measurements of one model: a row of a table or a line of a figure.

    Attributes:
        train_length: training length in tokens, or None for a line through models of several ones.
        measurements: the measurements.
        name: name of the model.
        variant: difference from other models of the same name.
        printed: True for the paper's numbers.
    """

    position_method: str
    train_length: int | None
    measurements: Sequence[Measurement]
    name: str = ""
    variant: str = ""
    printed: bool = False

    @property
    def key(self) -> ModelKey:
        """Key of the model that it also has in results on other corpora."""
        options = options_of_any_corpus(self.measurements[0].train_command or "")
        return self.position_method, self.train_length, options

    @property
    def label(self) -> str:
        """Name and variant of the model."""
        return f"{self.name} ({self.variant})" if self.variant else self.name


def group_by_model(measurements: Iterable[Measurement]) -> list[Series]:
    """Group measurements by model as :func:`split_by_model`, and average seeds."""
    averaged = []
    for series in split_by_model(measurements):
        averaged.append(replace(series, measurements=average_seeds(series.measurements)))
    return averaged


def split_by_model(measurements: Iterable[Measurement]) -> list[Series]:
    """Group measurements by model, in table order.

    Methods that tables do not know, such as those of a plugin, keep their place in the order of the
    measurements. Models that differ in more than the seed have separate series, named by the
    difference. So have runs that are not known to be different seeds, or to be measured on the same
    text.
    """
    by_model: dict[tuple[str, int], list[Measurement]] = defaultdict(list)
    for measurement in dict.fromkeys(measurements):
        by_model[measurement.position_method, measurement.train_length].append(measurement)
    ranks = _method_ranks(method for method, _ in by_model)
    all_series = []
    for method, train_length in sorted(by_model, key=lambda model: (ranks[model[0]], model[1])):
        for variant, members in split_variants(by_model[method, train_length]).items():
            name = model_label(method, train_length, members[0].display_name)
            all_series.append(Series(method, train_length, members, name, variant))
    return all_series


def _method_ranks(methods: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the sort key of each method. Unknown methods stay behind the one that they follow."""
    ranks: dict[str, tuple[int, int]] = {}
    rank = (-1, 0)
    for method in methods:
        if method in ranks:
            continue
        known_rank, _ = method_order(method)
        rank = (known_rank, 0) if method in METHOD_NAMES else (rank[0], rank[1] + 1)
        ranks[method] = rank
    return ranks
