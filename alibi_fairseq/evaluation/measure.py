"""Losses of a stream's tokens, window by window, summed exactly.

Token losses are fp32; they are summed in float64 within a window, and window sums are added as exact
fractions. The total of a split therefore depends neither on the order of addition nor on sharding.

Shapes: N tokens of the stream, B windows of a batch, T inputs of a window, S tokens it scores.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import BadInput
from .windows import Window


class LossSum(NamedTuple):
    """Exact sum of −ln p over some tokens, in nats, and the number of tokens."""

    nats: Fraction = Fraction(0)
    tokens: int = 0

    def plus(self, nats: Fraction, tokens: int) -> LossSum:
        return LossSum(self.nats + nats, self.tokens + tokens)


@dataclass(frozen=True)
class Stream:
    """A split on the evaluation device.

    Attributes:
        inputs: (N,) int64, the input at every position.
        targets: (N,) int64, the token to predict at every position.
        name: for messages.
    """

    inputs: Tensor
    targets: Tensor
    name: str


#: Maps (B, T) inputs and (B, S) targets of the last S inputs to (B, S) losses in nats.
Scorer = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def measure(
    score: Scorer,
    stream: Stream,
    batches: list[list[Window]],
    edges: list[int],
    progress: Callable[[int], object] = lambda inputs: None,
) -> list[LossSum]:
    """Sum the losses of all scored tokens by their position within the window.

    Args:
        score: the model.
        stream: the split.
        batches: windows of one length that score equally many tokens, in each batch.
        edges: edges of the position buckets, increasing from 0; ``[0, L]`` is a single bucket.
        progress: called after each batch with its number of inputs.

    Returns:
        One sum per bucket; bucket i contains positions ``edges[i] … edges[i + 1] - 1``.

    Raises:
        BadInput: if a loss is not finite; names the window.
    """
    sums = [LossSum() for _ in edges[:-1]]
    for batch in batches:
        losses = window_losses(score, stream, batch)  # (B, S)
        length, scores = batch[0].length, batch[0].scores
        position = length - scores
        while position < length:
            bucket = bisect_right(edges, position) - 1
            end = min(edges[bucket + 1], length)
            columns = slice(position - length + scores, end - length + scores)
            per_window = losses[:, columns].sum(dim=1).tolist()
            total = sum(map(Fraction, per_window), Fraction(0))
            sums[bucket] = sums[bucket].plus(total, len(batch) * (end - position))
            position = end
        progress(len(batch) * length)
    return sums


def window_losses(score: Scorer, stream: Stream, batch: list[Window]) -> Tensor:
    """(B, S) float64 losses of one batch, in nats."""
    device = stream.inputs.device
    starts = torch.tensor([window.start for window in batch], device=device)
    positions = starts[:, None] + torch.arange(batch[0].length, device=device)  # (B, T)
    targets = stream.targets[positions[:, -batch[0].scores :]]  # (B, S)
    losses = score(stream.inputs[positions], targets).double()
    finite = losses.isfinite().all(dim=1)
    if not finite.all():
        start, scored, stop = batch[int((~finite).nonzero()[0])]
        raise BadInput(
            f"The model's score of some token from {scored} to {stop - 1} of '{stream.name}' is not "
            f"finite (window of inputs {start} to {stop - 1}), so there is no result. Half precision "
            "may overflow where fp32 does not: try --precision fp32."
        )
    return losses


def bucket_edges(length: int, buckets: int) -> list[int]:
    """Edges of at most ``buckets`` position buckets over 0 … length − 1.

    The edges grow geometrically because the loss falls fastest over the first positions. Buckets
    that would be narrower than one position are merged, so there may be fewer than asked for.

    Returns:
        Strictly increasing, from 0 to ``length``; bucket i is ``edges[i] … edges[i + 1] − 1``.

    Raises:
        BadInput: ``buckets`` is less than 1.
    """
    if buckets < 1:
        raise BadInput(f"--buckets must be at least 1, not {buckets}.")
    return sorted({0} | {round(length ** (i / buckets)) for i in range(1, buckets + 1)})
