"""Losses of a stream's tokens, window by window, summed exactly.

Token losses are fp32; they are summed in float64 within a window, and window sums are added as exact
fractions. The total of a split therefore depends neither on the order of addition nor on sharding.

Shapes: N tokens of the stream, B windows of a batch, T inputs of a window, S tokens it scores.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..errors import BadInput
from .text import TextSize
from .windows import Window

if TYPE_CHECKING:  # it imports fairseq, which merging shards does without
    from .data import Split

#: Largest number of position buckets; finding their edges takes time in proportion.
MOST_BUCKETS = 100_000


class LossSum(NamedTuple):
    """Exact sum of −ln p over some tokens, in nats, and the number of tokens."""

    nats: Fraction = Fraction(0)
    tokens: int = 0

    def plus(self, nats: Fraction, tokens: int) -> LossSum:
        return LossSum(self.nats + nats, self.tokens + tokens)

    @classmethod
    def over(cls, parts: Iterable[LossSum]) -> LossSum:
        """The sum of several."""
        return reduce(lambda total, part: total.plus(*part), parts, cls())


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

    @classmethod
    def of(cls, split: Split, stride: int, device: torch.device) -> Stream:
        """The stream of a split when every window scores ``stride`` tokens."""
        inputs, targets = map(torch.from_numpy, (split.inputs(stride), split.tokens))
        return cls(inputs.to(device), targets.to(device), split.name)


#: Maps (B, T) inputs and (B, S) targets of the last S inputs to (B, S) losses in nats.
Scorer = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def losses_of(
    score: Scorer, stream: Stream, batches: list[list[Window]]
) -> Iterator[tuple[list[Window], Tensor]]:
    """Compute the losses of all scored tokens, batch by batch.

    Args:
        score: the model.
        stream: the split.
        batches: windows of one length that score equally many tokens, in each batch.

    Yields:
        Each batch and its (B, S) float64 losses in nats.

    Raises:
        BadInput: if a loss is not finite; names the window.
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
        score, stream, batches: as for :func:`losses_of`.
        edges: edges of the sums, increasing from 0; ``[0, L]`` gives a single one.
        progress: called after each batch with its number of inputs.
        of_stream: the edges are positions in the stream, otherwise in the window.

    Returns:
        Sum i is over the positions ``edges[i] … edges[i + 1] - 1``.
    """
    sums = [LossSum() for _ in edges[:-1]]
    for batch, losses in losses_of(score, stream, batches):
        scores = batch[0].scores
        # The position of the first column in each window.
        firsts = [window.scored - (0 if of_stream else window.start) for window in batch]
        cuts = {0, scores}
        for first in set(firsts):
            inside = edges[bisect_right(edges, first) : bisect_left(edges, first + scores)]
            cuts.update(edge - first for edge in inside)
        for begin, end in pairwise(sorted(cuts)):
            per_window = losses[:, begin:end].sum(dim=1).tolist()
            for first, nats in zip(firsts, per_window):
                index = bisect_right(edges, first + begin) - 1
                sums[index] = sums[index].plus(Fraction(nats), end - begin)
        progress(len(batch) * batch[0].length)
    return sums


def bucket_edges(length: int, buckets: int) -> list[int]:
    """Edges of at most ``buckets`` position buckets over 0 … length − 1.

    The edges grow geometrically because the loss falls fastest over the first positions. Buckets
    that would be narrower than one position are merged, so there may be fewer than asked for.

    Returns:
        Strictly increasing, from 0 to ``length``; bucket i is ``edges[i] … edges[i + 1] − 1``.

    Raises:
        BadInput: ``buckets`` is less than 1, or beyond ``MOST_BUCKETS``.
    """
    if not 1 <= buckets <= MOST_BUCKETS:
        raise BadInput(f"--buckets must be 1 to {MOST_BUCKETS:,}, not {buckets:,}.")
    return sorted({0} | {round(length ** (i / buckets)) for i in range(1, buckets + 1)})


def evaluation_cell(total: LossSum, text: TextSize) -> dict:
    """``tokens, loss_bits, perplexity``, and per word and per byte where the text's size is known."""
    nats = float(total.nats)
    cell = position_cell(total)
    cell["perplexity"] = math.exp(nats / total.tokens)
    if text.words:
        cell |= {"words": text.words, "word_perplexity": math.exp(nats / text.words)}
    if text.bytes:
        cell |= {"bytes": text.bytes, "bits_per_byte": nats / math.log(2) / text.bytes}
    return cell


def position_cell(total: LossSum) -> dict:
    """``tokens, loss_bits``."""
    return {
        "tokens": total.tokens,
        "loss_bits": float(total.nats) / total.tokens / math.log(2),
    }


def document_cell(sums: Sequence[LossSum]) -> dict:
    """``document_tokens, document_bits`` of each document: from them come intervals of a bootstrap."""
    return {
        "document_tokens": [each.tokens for each in sums],
        "document_bits": [round(float(each.nats) / math.log(2), 4) for each in sums],
    }
