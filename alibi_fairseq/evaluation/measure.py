"""Losses of a stream's tokens, window by window, and their exact sums.

Token losses are fp32; they are summed in float64 within a window, and window sums are added as exact
fractions. A total therefore depends neither on the order of addition nor on sharding.

Shapes: N tokens of the stream, B windows of a batch, T inputs of a window, S tokens it scores.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import BadInput
from .windows import Window

#: Largest number of position buckets; finding their edges takes time in proportion.
MOST_BUCKETS = 100_000


class LossSum(NamedTuple):
    """Exact sum of −ln p over some tokens, in nats, and the number of tokens."""

    nats: Fraction = Fraction(0)
    tokens: int = 0

    @property
    def bits(self) -> float:
        return float(self.nats) / math.log(2)

    @classmethod
    def over(cls, parts: Sequence[LossSum]) -> LossSum:
        return cls(sum((part.nats for part in parts), Fraction(0)), sum(p.tokens for p in parts))


class Stream(NamedTuple):
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
def losses_of(
    score: Scorer, stream: Stream, batches: list[list[Window]]
) -> Iterator[tuple[list[Window], Tensor]]:
    """Each batch, windows of one length and stride, and its (B, S) float64 losses in nats.

    Raises:
        BadInput: a loss is not finite.
    """
    device = stream.inputs.device
    for batch in batches:
        starts = torch.tensor([window.start for window in batch], device=device)
        positions = starts[:, None] + torch.arange(batch[0].length, device=device)  # (B, T)
        targets = stream.targets[positions[:, -batch[0].scores :]]  # (B, S)
        losses = score(stream.inputs[positions], targets).double()
        finite = losses.isfinite().all(dim=1)
        if not finite.all():
            start, scored, stop = batch[int((~finite).nonzero()[0])]
            raise BadInput(
                f"The model's score of some token from {scored} to {stop - 1} of '{stream.name}' is "
                f"not finite (window of inputs {start} to {stop - 1}), so there is no result. Half "
                "precision may overflow where fp32 does not: try --precision fp32."
            )
        yield batch, losses


def measure(
    score: Scorer,
    stream: Stream,
    batches: list[list[Window]],
    edges: Sequence[int],
    progress: Callable[[int], object] = lambda inputs: None,
    *,
    of_stream: bool = False,
) -> list[LossSum]:
    """Sum the losses of all scored tokens by their position within the window, or the stream.

    Args:
        edges: edges of the sums, increasing from 0; ``[0, L]`` gives a single one.
        progress: called after each batch with its number of inputs.
        of_stream: the edges are positions in the stream, otherwise in the window.

    Returns:
        Sum i is over the positions ``edges[i] … edges[i + 1] - 1``.
    """
    nats, tokens = [Fraction(0) for _ in edges], [0 for _ in edges]
    for batch, losses in losses_of(score, stream, batches):
        # The position of the first column in each window, and the columns where a sum begins.
        firsts = [window.scored - (0 if of_stream else window.start) for window in batch]
        cuts = {0, batch[0].scores}
        for first in set(firsts):
            end = first + batch[0].scores
            inside = edges[bisect_right(edges, first) : bisect_left(edges, end)]
            cuts.update(edge - first for edge in inside)
        for begin, end in pairwise(sorted(cuts)):
            for first, total in zip(firsts, losses[:, begin:end].sum(dim=1).tolist()):
                index = bisect_right(edges, first + begin) - 1
                nats[index] += Fraction(total)
                tokens[index] += end - begin
        progress(len(batch) * batch[0].length)
    return list(map(LossSum, nats[:-1], tokens[:-1]))


def bucket_edges(length: int, buckets: int) -> list[int]:
    """Edges of at most ``buckets`` position buckets over 0 … length − 1.

    The edges grow geometrically because the loss falls fastest over the first positions. Buckets
    that would be narrower than one position are merged, so there may be fewer than asked for.

    Returns:
        Strictly increasing, from 0 to ``length``; bucket i is ``edges[i] … edges[i + 1] − 1``.
    """
    if not 1 <= buckets <= MOST_BUCKETS:
        raise BadInput(f"--buckets must be 1 to {MOST_BUCKETS:,}, not {buckets:,}.")
    return sorted({0} | {round(length ** (i / buckets)) for i in range(1, buckets + 1)})


class TextSize(NamedTuple):
    """Words and bytes that tokens stand for, including line ends; None where unknown."""

    words: int | None = None
    bytes: int | None = None
