"""Averages over the seeds of a model."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .identity import Role
from .measurements import Measurement


def average_seeds(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Replace measurements that differ only in their seed by their mean."""
    averaged = []
    for repeats in _group_repeats(measurements):
        if len(repeats) > 1 and are_seeds(repeats):
            averaged.append(_mean(repeats))
        else:
            averaged += repeats
    return averaged


def are_seeds(measurements: Sequence[Measurement]) -> bool:
    """Return True if all measurements are of one run, or of runs that differ only in their seed.

    Several runs must have different known seeds, and the same known data of each split. The data
    can differ between splits, which may have been evaluated one by one.

    Args:
        measurements: measurements of one model at any lengths, each once.
    """
    for repeats in _group_repeats(measurements):
        # Two measurements of one run at one length are not seeds.
        if len({repeat.identity(Role.RUN) for repeat in repeats}) < len(repeats):
            return False
    runs = {measurement.identity(Role.RUN) for measurement in measurements}
    if len(runs) == 1:
        return True
    seeds: dict[tuple, int] = {}  # by run
    hashes: dict[tuple[str | None, str], set[str | None]] = defaultdict(set)  # by corpus and split
    for measurement in measurements:
        if measurement.seed is not None:
            seeds[measurement.identity(Role.RUN)] = measurement.seed
        hashes[measurement.corpus, measurement.subset].add(measurement.data_sha256)
    has_same_data = all(len(values) == 1 and None not in values for values in hashes.values())
    return has_same_data and len(set(seeds.values())) == len(runs)


def _group_repeats(measurements: Iterable[Measurement]) -> list[list[Measurement]]:
    """Group repeats of a measurement, such as those of several seeds, in order of length."""
    groups: dict[tuple, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        order = (
            measurement.length,
            not measurement.nonoverlapping,
            measurement.stride,
            measurement.subset,
        )
        groups[order, measurement.identity(Role.MEASUREMENT)].append(measurement)
    # As text, because the values of an identity have types that do not compare.
    ordered = sorted(groups, key=lambda group: (group[0], str(group[1])))
    return [groups[group] for group in ordered]


def _mean(repeats: list[Measurement]) -> Measurement:
    """Return the mean of a measurement over seeds, of each value over the seeds that have it."""
    perplexities = [repeat.perplexity for repeat in repeats if repeat.perplexity is not None]
    update_counts = {repeat.updates for repeat in repeats}
    mean = replace(
        repeats[0],
        perplexity=_mean_of_known(repeat.perplexity for repeat in repeats),
        bits_per_byte=_mean_of_known(repeat.bits_per_byte for repeat in repeats),
        tokens_per_second=_mean_of_known(repeat.tokens_per_second for repeat in repeats),
        tokens_per_second_batch_1=_mean_of_known(
            repeat.tokens_per_second_batch_1 for repeat in repeats
        ),
        spread=statistics.stdev(perplexities) if len(perplexities) > 1 else None,
        seeds=len(repeats),
        seed=None,
        # The best checkpoints of several seeds have different update counts.
        updates=repeats[0].updates if len(update_counts) == 1 else None,
    )
    return replace(mean, **_average_positions(repeats))


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known, or None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _average_positions(repeats: list[Measurement]) -> dict[str, Any]:
    """Return mean and spread of the losses by position, as attributes of a measurement.

    If a seed lacks these losses, the attributes are empty.
    """
    if not all(repeat.position_bits for repeat in repeats):
        return {"position_ends": (), "position_tokens": (), "position_bits": ()}
    means = []
    spreads = []
    for bucket in zip(*(repeat.position_bits for repeat in repeats), strict=True):
        means.append(statistics.fmean(bucket))
        spreads.append(statistics.stdev(bucket))
    return {"position_bits": means, "position_spread": spreads}
