"""Averages over the seeds of a model."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from alibi_fairseq.results.identity import Role
from alibi_fairseq.results.measurements import Measurement


def average_seeds(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Replace results of several seeds by their mean."""
    averaged = []
    for results in _by_measurement(measurements):
        if len(results) > 1 and are_seeds(results):
            averaged.append(_mean(results))
        else:
            averaged += results
    return averaged


def are_seeds(measurements: Sequence[Measurement]) -> bool:
    """Return True if all results of the same measurement have different known seeds."""
    for results in _by_measurement(measurements):
        if len(results) == 1:
            continue
        seeds = {result.seed for result in results}
        if results[0].data_sha256 is None or None in seeds or len(seeds) < len(results):
            return False
    return True


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
    if not all(seed.position_bits for seed in seeds):
        return {"position_ends": (), "position_tokens": (), "position_bits": ()}
    means = []
    spreads = []
    for values in zip(*(seed.position_bits for seed in seeds), strict=True):
        means.append(statistics.fmean(values))
        spreads.append(statistics.stdev(values))
    return {"position_bits": means, "position_spread": spreads}
