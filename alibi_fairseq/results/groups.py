"""Measurements grouped by evaluation and by model, with seeds averaged."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ..positions.spec import KNOWN_LABELS, MethodNameKey
from .model import ModelKey
from .names import (
    TableNames,
    joined,
    model_label,
    run_names,
    text_names,
)
from .record import Measurement, ProbeMeasurement, TextKey

#: Measurement of a model on a text or on a probe.
MeasurementType = TypeVar("MeasurementType", bound=Measurement | ProbeMeasurement)


def group_by_evaluation(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements that are comparable, validation and non-overlapping windows first.

    A group has one split, one text, and either one stride or non-overlapping windows of any length.
    Its name, such as ``valid, non-overlapping``, includes the text only if there are several.
    """
    return _group(measurements, lambda measurement: measurement.text_key)


def group_by_raw_text(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements on raw text whose bits per byte are comparable, of any tokenizer.

    Groups are made as in :func:`group_by_evaluation`, except that a text may have several
    tokenizations.
    """
    known = []
    for measurement in measurements:
        if measurement.is_raw_text and measurement.bits_per_byte is not None:
            known.append(measurement)
    return _group(known, lambda measurement: measurement.raw_text_key)


def _group(
    measurements: Iterable[Measurement], text_of: Callable[[Measurement], TextKey]
) -> dict[str, list[Measurement]]:
    """Group measurements by split, kind of windows, and text, in the order of the evaluations."""
    ordered = sorted(measurements, key=_evaluation_order)
    names = text_names(text_of(measurement) for measurement in ordered)
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in ordered:
        parts = [measurement.subset, measurement.window_kind, names[text_of(measurement)]]
        group = ", ".join(part for part in parts if part)
        groups[group].append(measurement)
    return groups


def _evaluation_order(measurement: Measurement) -> tuple[bool, str, bool, int]:
    """Return the sort key of a measurement's split and stride."""
    subset = measurement.subset
    is_sliding = not measurement.nonoverlapping
    stride = measurement.stride if is_sliding else 0
    return (subset != "valid", subset, is_sliding, stride)


@dataclass(frozen=True)
class ModelMeasurements(Generic[MeasurementType]):
    """Measurements of one model: a row of a table or a line of a figure.

    Attributes:
        method_name: name of the position method in tables; empty for models by other authors.
        train_length: training length in tokens; None if the models have several training lengths.
        measurements: the measurements.
        name: name of the model.
        variant: differences from the other models of the table.
        is_printed: True for the paper's numbers.
    """

    method_name: str
    train_length: int | None
    measurements: Sequence[MeasurementType]
    name: str = ""
    variant: str = ""
    is_printed: bool = False

    @property
    def key(self) -> ModelKey:
        """Key of the model, which is the same for results on all corpora."""
        return self.measurements[0].model.key_of_any_corpus

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
    measurements: Iterable[MeasurementType],
) -> list[ModelMeasurements[MeasurementType]]:
    """Group measurements by model, in table order. Of equal measurements, the first is kept.

    Methods without a place in that order, such as plugin methods, follow the method that comes
    before them in the measurements. Models that differ in more than the seed have separate groups,
    named by the difference. Where models differ in more than the position method, each name states
    this (:class:`.TableNames`). Runs also have separate groups unless they are known to have
    different seeds and the same text.
    """
    by_key: dict[tuple, MeasurementType] = {}
    for measurement in measurements:
        by_key.setdefault(measurement.key, measurement)
    groups: dict[tuple[MethodNameKey, int], list[MeasurementType]] = defaultdict(list)
    for measurement in by_key.values():
        model = measurement.model
        groups[model.method.name_key, model.train_length].append(measurement)
    ranks = _method_ranks(name_key for name_key, _ in groups)
    models = []
    table = TableNames(by_key.values())
    for name_key, train_length in sorted(groups, key=lambda group: (ranks[group[0]], group[1])):
        for variant, members in _split_variants(groups[name_key, train_length], table).items():
            method_name = members[0].model.method_name
            name = model_label(method_name, train_length)
            models.append(ModelMeasurements(method_name, train_length, members, name, variant))
    return models


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


def _split_variants(
    measurements: list[MeasurementType], table: TableNames
) -> dict[str, list[MeasurementType]]:
    """Group measurements of one method and training length by model, and name the differences.

    Args:
        measurements: the measurements.
        table: names of the models of the table.

    Returns:
        The measurements of each model by name, in alphabetical order. The name is empty if the
        model differs from no other in the table by more than method and training length.
    """
    names = table.names_of(measurements)
    by_name: dict[str, list[MeasurementType]] = defaultdict(list)
    for measurement, name in zip(measurements, names, strict=True):
        by_name[name].append(measurement)
    by_name = _split_by_exact_size(by_name)
    variants: dict[str, list[MeasurementType]] = defaultdict(list)
    for name, members in by_name.items():
        if are_seeds(members):
            variants[name] += members
            continue
        # They may not be seeds of one model on one text, so they are not averaged.
        name_of_run = run_names(member.model for member in members)
        for measurement in members:
            run_name = name_of_run[measurement.model.checkpoint_key]
            variants[joined([name, run_name])].append(measurement)
    return dict(sorted(variants.items()))


def _split_by_exact_size(
    by_name: dict[str, list[MeasurementType]],
) -> dict[str, list[MeasurementType]]:
    """Add the number of parameters to the names that models of different sizes share.

    Names contain rounded numbers.
    """
    split: dict[str, list[MeasurementType]] = defaultdict(list)
    for name, members in by_name.items():
        sizes = {member.model.parameters for member in members}
        if len(sizes) == 1:
            split[name] += members
            continue
        for member in members:
            size = "of unknown size"
            if member.model.parameters is not None:
                size = f"{member.model.parameters:,} parameters"
            split[joined([name, size])].append(member)
    return split


class MeanMeasurement(Measurement):
    """Mean of measurements that differ only in their seed, of each value over those that have it.

    Attributes:
        repeats: the measurements.
    """

    repeats: list[Measurement]

    @classmethod
    def of(cls, repeats: list[Measurement]) -> MeanMeasurement:
        """Return the mean of measurements."""
        first = repeats[0]
        values = dict(first)
        values["repeats"] = repeats
        # The best checkpoints of several seeds have different update counts.
        update_counts = {repeat.model.updates for repeat in repeats}
        updates = first.model.updates if len(update_counts) == 1 else None
        values["model"] = first.model.model_copy(update={"seed": None, "updates": updates})
        values["tokens_per_second"] = _mean_of_known(repeat.tokens_per_second for repeat in repeats)
        values["tokens_per_second_batch_1"] = _mean_of_known(
            repeat.tokens_per_second_batch_1 for repeat in repeats
        )
        if all(repeat.position_bits for repeat in repeats):
            values["position_bits"] = [statistics.fmean(bits) for bits in _buckets(repeats)]
        else:
            values.update(position_ends=[], position_tokens=[], position_bits=[])
        # All seeds were evaluated on the same windows, so the error does not decrease.
        errors = zip(*(repeat.position_errors for repeat in repeats))
        values["position_errors"] = [_mean_of_known(of_bucket) for of_bucket in errors]
        return cls.model_construct(**values)

    @property
    def perplexity(self) -> float | None:
        """Mean perplexity per token."""
        return _mean_of_known(repeat.perplexity for repeat in self.repeats)

    @property
    def bits_per_byte(self) -> float | None:
        """Mean of the bits per byte of the text."""
        return _mean_of_known(repeat.bits_per_byte for repeat in self.repeats)

    @property
    def seeds(self) -> int:
        """Number of averaged seeds."""
        return len(self.repeats)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the perplexity over seeds."""
        known = [repeat.perplexity for repeat in self.repeats if repeat.perplexity is not None]
        return statistics.stdev(known) if len(known) > 1 else None

    @property
    def position_spread(self) -> list[float]:
        """Standard deviation of ``position_bits`` over seeds; empty if a seed lacks them."""
        if not self.position_bits:
            return []
        return [statistics.stdev(bits) for bits in _buckets(self.repeats)]


def _buckets(repeats: Iterable[Measurement]) -> Iterable[tuple[float, ...]]:
    """Return the losses of each bucket of the loss by position, by seed."""
    return zip(*(repeat.position_bits for repeat in repeats), strict=True)


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known, or None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def average_seeds(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Replace measurements that differ only in their seed by their mean."""
    averaged: list[Measurement] = []
    ordered = sorted(
        measurements,
        key=lambda measurement: (
            measurement.length,
            not measurement.nonoverlapping,
            measurement.stride,
            measurement.subset,
            str(measurement.text_key),  # as text, because unknown values do not compare
        ),
    )
    for repeats in _by_case(ordered):
        if len(repeats) > 1 and are_seeds(repeats):
            averaged.append(MeanMeasurement.of(repeats))
        else:
            averaged += repeats
    return averaged


def are_seeds(measurements: Sequence[Measurement | ProbeMeasurement]) -> bool:
    """Return True if all measurements are of one run, or of runs that differ only in their seed.

    Several runs must be of one model, and have different known seeds and the same known data of
    each split. The data can differ between splits, which may have been evaluated one by one.

    Args:
        measurements: measurements at any lengths, each once.
    """
    if len({measurement.model.key for measurement in measurements}) > 1:
        return False
    for repeats in _by_case(measurements):
        # Two measurements of one run at one length are not seeds.
        if len({repeat.model.checkpoint_key for repeat in repeats}) < len(repeats):
            return False
    runs = {measurement.model.checkpoint_key for measurement in measurements}
    if len(runs) == 1:
        return True
    seeds: dict[tuple, int] = {}  # by run
    hashes: dict[tuple[str | None, str], set[str | None]] = defaultdict(set)  # by corpus and split
    for measurement in measurements:
        if measurement.model.seed is not None:
            seeds[measurement.model.checkpoint_key] = measurement.model.seed
        hashes[measurement.corpus, measurement.subset].add(measurement.data_sha256)
    has_same_data = all(len(values) == 1 and None not in values for values in hashes.values())
    return has_same_data and len(set(seeds.values())) == len(runs)


def _by_case(measurements: Iterable[MeasurementType]) -> list[list[MeasurementType]]:
    """Group repeats of a measurement, such as its values for several seeds."""
    groups: dict[tuple, list[MeasurementType]] = defaultdict(list)
    for measurement in measurements:
        groups[measurement.case_key].append(measurement)
    return list(groups.values())
