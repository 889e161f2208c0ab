"""Positions within a window, grouped: single ones at its start, ever wider groups behind."""

from __future__ import annotations

from ..errors import BadInput


def bucket_edges(length: int, buckets: int) -> list[int]:
    """Bounds of at most ``buckets`` groups of positions 0 … length − 1.

    The bounds grow geometrically, because the loss falls fastest over the first positions; where
    that asks for less than one position, groups of one take its place and there are fewer groups.

    Returns:
        Strictly rising, from 0 to ``length``; group i is ``edges[i] … edges[i + 1] − 1``.
    """
    if buckets < 1:
        raise BadInput(f"Losses need at least 1 group of positions, not {buckets}.")
    return sorted({0} | {round(length ** (i / buckets)) for i in range(1, buckets + 1)})
