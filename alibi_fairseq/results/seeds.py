"""Averages over the seeds of a model."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from .record import Measurement, ProbeMeasurement

#: Measurement of a model on a text or on a probe.
AnyMeasurement = TypeVar("AnyMeasurement", bound=Measurement | ProbeMeasurement)


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

    Several runs must have different known seeds, and the same known data of each split. The data
    can differ between splits, which may have been evaluated one by one.

    Args:
        measurements: measurements of one model at any lengths, each once.
    """
    for repeats in _by_case(measurements):
        # Two measurements of one run at one length are not seeds.
        if len({repeat.model.run_key for repeat in repeats}) < len(repeats):
            return False
    runs = {measurement.model.run_key for measurement in measurements}
    if len(runs) == 1:
        return True
    seeds: dict[tuple, int] = {}  # by run
    hashes: dict[tuple[str | None, str], set[str | None]] = defaultdict(set)  # by corpus and split
    for measurement in measurements:
        if measurement.model.seed is not None:
            seeds[measurement.model.run_key] = measurement.model.seed
        hashes[measurement.corpus, measurement.subset].add(measurement.data_sha256)
    has_same_data = all(len(values) == 1 and None not in values for values in hashes.values())
    return has_same_data and len(set(seeds.values())) == len(runs)


def _by_case(measurements: Iterable[AnyMeasurement]) -> list[list[AnyMeasurement]]:
    """Group repeats of a measurement, such as those of several seeds."""
    groups: dict[tuple, list[AnyMeasurement]] = defaultdict(list)
    for measurement in measurements:
        groups[measurement.case_key].append(measurement)
    return list(groups.values())
