"""Mean and spread of a value over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known, or None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def standard_deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the values; None of fewer than two."""
    return statistics.stdev(values) if len(values) > 1 else None
