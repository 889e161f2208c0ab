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
    """Return True if repeats of a measurement have different known seeds on the same known data.

    Measurements without repeats may have unknown seeds.
    """
    for repeats in _group_repeats(measurements):
        if len(repeats) == 1:
            continue
        # All repeats have the same hash. If it is unknown, their data may differ.
        if repeats[0].data_sha256 is None:
            return False
        seeds = {repeat.seed for repeat in repeats}
        if None in seeds or len(seeds) < len(repeats):
            return False
    return True


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
    """Return the mean of a measurement over seeds."""
    perplexities = [repeat.perplexity for repeat in repeats if repeat.perplexity is not None]
    bits_per_byte = [repeat.bits_per_byte for repeat in repeats if repeat.bits_per_byte is not None]
    update_counts = {repeat.updates for repeat in repeats}
    mean = replace(
        repeats[0],
        perplexity=statistics.fmean(perplexities) if perplexities else None,
        bits_per_byte=statistics.fmean(bits_per_byte) if bits_per_byte else None,
        spread=statistics.stdev(perplexities) if len(perplexities) > 1 else None,
        seeds=len(repeats),
        seed=None,
        # The best checkpoints of several seeds have different update counts.
        updates=repeats[0].updates if len(update_counts) == 1 else None,
    )
    return replace(mean, **_average_positions(repeats))


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
