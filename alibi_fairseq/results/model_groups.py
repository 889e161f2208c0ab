"""Measurements grouped by model, with seeds averaged."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alibi_fairseq.results.labels import METHOD_NAMES, method_order, model_label, size_text
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.schema import Role, is_best_checkpoint
from alibi_fairseq.results.training_command import model_options, options_of_any_corpus

#: Position method, training length, and training options that are the same for all corpora.
ModelKey = tuple[str, int | None, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Series:
    """Measurements of one model: a row of a table or a line of a figure.

    Attributes:
        train_length: training length in tokens, or None for a line through models of several ones.
        points: the measurements.
        name: name of the model.
        variant: difference from other models of the same name.
        printed: True for the paper's numbers.
    """

    position_method: str
    train_length: int | None
    points: Sequence[Measurement]
    name: str = ""
    variant: str = ""
    printed: bool = False

    @property
    def key(self) -> ModelKey:
        """Key of the model that it also has in results on other corpora."""
        options = options_of_any_corpus(self.points[0].train_command or "")
        return self.position_method, self.train_length, options

    @property
    def label(self) -> str:
        """Name and variant of the model."""
        return f"{self.name} ({self.variant})" if self.variant else self.name


def group_by_model(measurements: Iterable[Measurement]) -> list[Series]:
    """Group measurements by model as :func:`split_by_model`, and average seeds."""
    return [
        replace(series, points=_average_seeds(series.points))
        for series in split_by_model(measurements)
    ]


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
        for variant, members in _variants(by_model[method, train_length]).items():
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


def _variants(measurements: list[Measurement]) -> dict[str, list[Measurement]]:
    """Group measurements of one method and training length by the difference that labels show."""
    descriptions = _descriptions(measurements)
    shown = _distinguishing_parts(measurements, descriptions)
    by_name: dict[str, list[Measurement]] = defaultdict(list)
    for measurement, parts in zip(measurements, descriptions, strict=True):
        by_name[_joined(parts[index] for index in shown)].append(measurement)
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for name, members in by_name.items():
        are_seeds = _are_seeds(members)
        for measurement in members:
            run = "" if are_seeds else _run_name(measurement, members)
            variants[_joined([name, run])].append(measurement)
    return dict(sorted(variants.items()))


def _joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty."""
    return ", ".join(part for part in parts if part)


def _distinguishing_parts(
    measurements: list[Measurement], descriptions: list[tuple[str, ...]]
) -> list[int]:
    """Return the indices of the first parts of descriptions that distinguish the models.

    The first part, which labels evaluations with overridden options, is always shown.
    """
    num_models = len({measurement.identity(Role.MODEL) for measurement in measurements})
    shown: list[int] = []
    for index, values in enumerate(zip(*descriptions, strict=True)):
        names = {tuple(parts[i] for i in shown) for parts in descriptions}
        is_label = index == 0 and set(values) != {""}
        is_needed = len(names) < num_models and len(set(values)) > 1
        if is_label or is_needed:
            shown.append(index)
    return shown


def _descriptions(measurements: list[Measurement]) -> list[tuple[str, ...]]:
    """Describe the model of each measurement in parts, the plainest first."""
    options = [dict(model_options(measurement.train_command or "")) for measurement in measurements]
    names = sorted({name for values in options for name in values})
    different = [name for name in names if len({values.get(name) for values in options}) > 1]
    descriptions: list[tuple[str, ...]] = []
    for measurement, values in zip(measurements, options, strict=True):
        training = "trained by an unknown command"
        if measurement.train_command:
            training = ", ".join(
                f"{name} {values[name]}".strip() for name in different if name in values
            )
        size = size_text(measurement.layers, measurement.width, measurement.parameters)
        descriptions.append(
            (
                measurement.label or "",
                size or "of unknown size",
                _updates_text(measurement),
                str(measurement.precision),
                measurement.model_overrides or "as trained",
                f"memory of {measurement.memory_length or 0}",
                measurement.model or "of unknown architecture",
                f"dictionary of {measurement.vocabulary or 'unknown size'}",
                f"lr {measurement.lr or 'unknown'}",
                training,
            )
        )
    return descriptions


def _updates_text(measurement: Measurement) -> str:
    """Describe the update count of a model, which differs between seeds of the best checkpoint."""
    if is_best_checkpoint(measurement.checkpoint):
        return "best checkpoint"
    return f"{measurement.updates} updates"


def _are_seeds(measurements: Sequence[Measurement]) -> bool:
    """Return True if all results of the same measurement have different known seeds."""
    for results in _by_measurement(measurements):
        if len(results) == 1:
            continue
        seeds = {result.seed for result in results}
        if results[0].data_sha256 is None or None in seeds or len(seeds) < len(results):
            return False
    return True


def _run_name(measurement: Measurement, measurements: list[Measurement]) -> str:
    """Return the difference of a run from the other runs of its model."""
    checkpoint = measurement.checkpoint or "unnamed"
    seed = "unknown seed" if measurement.seed is None else f"seed {measurement.seed}"
    checkpoints = {other.checkpoint for other in measurements}
    runs = {other.identity(Role.RUN) for other in measurements}
    if len(checkpoints) == len(runs):
        return checkpoint if len(checkpoints) > 1 else ""
    return f"{checkpoint}, {seed}" if len(checkpoints) > 1 else seed


def _by_measurement(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Group results of the same measurement, such as those of several seeds, in order of length."""
    groups: dict[tuple, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        order = (
            measurement.length,
            not measurement.nonoverlapping,
            measurement.stride,
            measurement.subset,
        )
        groups[order, measurement.identity(Role.MEASUREMENT)].append(measurement)
    ordered = sorted(groups, key=lambda group: (group[0], str(group[1])))
    return [groups[group] for group in ordered]


def _average_seeds(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Replace results of several seeds by their mean."""
    averaged = []
    for results in _by_measurement(measurements):
        if len(results) > 1 and _are_seeds(results):
            averaged.append(_mean(results))
        else:
            averaged += results
    return averaged


def _mean(results: list[Measurement]) -> Measurement:
    """Return the mean over seeds of the same measurement."""
    perplexities = [result.perplexity for result in results if result.perplexity is not None]
    bits_per_byte = [result.bits_per_byte for result in results if result.bits_per_byte is not None]
    update_counts = {result.updates for result in results}
    mean = replace(
        results[0],
        perplexity=statistics.fmean(perplexities) if perplexities else None,
        bits_per_byte=statistics.fmean(bits_per_byte) if bits_per_byte else None,
        spread=statistics.stdev(perplexities) if len(perplexities) > 1 else None,
        seeds=len(results),
        seed=None,
        # The best checkpoints of several seeds have different update counts.
        updates=results[0].updates if len(update_counts) == 1 else None,
    )
    return replace(mean, **_average_positions(results))


def _average_positions(seeds: list[Measurement]) -> dict[str, Any]:
    """Return mean and spread of the losses by position, or nothing if a seed lacks them."""
    bits = [seed.position_bits for seed in seeds]
    if not all(bits):
        return {"position_ends": (), "position_tokens": (), "position_bits": ()}
    by_bucket = list(zip(*bits, strict=True))
    return {
        "position_bits": [statistics.fmean(values) for values in by_bucket],
        "position_spread": [statistics.stdev(values) for values in by_bucket],
    }
