"""Losses of a split's tokens, window by window, and their sums: in total and by position.

Token losses are fp32; they are summed in float64 within a window. ``math.fsum`` then adds the sums
of windows without rounding, so a total does not depend on the order of addition.

Shapes: N tokens of the split, B windows of a batch, T inputs of a window, S tokens it scores.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import UserInputError
from .windows import Span, Window


class SplitTensors(NamedTuple):
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
#: Windows of a batch, and their (B, S) losses in nats.
ScoredBatch = tuple[list[Window], Tensor]


@torch.no_grad()
def score_batches(
    score: Scorer, tensors: SplitTensors, batches: list[list[Window]]
) -> Iterator[ScoredBatch]:
    """Yield each batch and the (B, S) float64 losses of its windows in nats.

    Args:
        tensors: the split on the device of the model.
        batches: windows of the same length that score equally many tokens (:func:`make_batches`).

    Raises:
        UserInputError: a loss is not finite.
    """
    device = tensors.inputs.device
    for batch in batches:
        starts = torch.tensor([window.start for window in batch], device=device)
        steps = torch.arange(batch[0].length, device=device)
        positions = starts[:, None] + steps  # (B, T)
        scored = positions[:, -batch[0].num_scored :]  # (B, S)
        losses = score(tensors.inputs[positions], tensors.targets[scored]).double()
        finite = losses.isfinite().all(dim=1)
        if not finite.all():
            first_not_finite = int((~finite).nonzero()[0])
            window = batch[first_not_finite]
            last = window.stop - 1
            raise not_finite(
                f"tokens {window.first_scored} to {last} of '{tensors.name}' (window of inputs "
                f"{window.start} to {last})"
            )
        yield batch, losses


def not_finite(tokens: str) -> UserInputError:
    """Return the error for some tokens whose scores are not finite."""
    return UserInputError(
        f"The model's scores of {tokens} are not finite, so there is no result. Half precision "
        "may overflow where fp32 does not: try --precision fp32."
    )


def sum_losses(
    scored: Iterable[ScoredBatch],
    spans: Sequence[Span],
    loss_by_position: LossByPosition,
    progress: Callable[[int], object] = lambda inputs: None,
) -> list[list[float]]:
    """Return the loss of each span in nats, as terms to add up.

    Args:
        scored: batches with their losses (:func:`score_batches`).
        spans: tokens to add up, in the order of the split. Other scored tokens are left out.
        loss_by_position: also receives the loss of the tokens in spans.
        progress: called after each batch with its number of inputs.
    """
    firsts = [span.first for span in spans]
    edges = []
    for span in spans:
        edges += [span.first, span.stop]
    sums: list[list[float]] = [[] for _ in spans]
    for batch, losses in scored:
        # Per window, span, and bucket: first column, end, and loss of these tokens. They may be in
        # several blocks, because all windows of a batch are cut at the same columns.
        observations: dict[tuple[Window, int, int], tuple[int, int, float]] = {}
        for begin, end in pairwise(_cut_columns(batch, edges, loss_by_position)):
            totals = losses[:, begin:end].sum(dim=1).tolist()
            for window, total in zip(batch, totals):
                token = window.first_scored + begin
                index = bisect_right(firsts, token) - 1  # last span that starts up to the token
                if index < 0 or token >= spans[index].stop:
                    continue
                sums[index].append(total)
                key = (window, index, loss_by_position.bucket(window, begin))
                first, _, nats = observations.get(key, (begin, end, 0.0))
                observations[key] = (first, end, nats + total)
        for (window, _, _), (begin, end, nats) in observations.items():
            loss_by_position.add(window, begin, end, nats)
        progress(len(batch) * batch[0].length)
    return sums


def _cut_columns(
    batch: list[Window], edges: list[int], loss_by_position: LossByPosition
) -> list[int]:
    """Return the columns at which the (B, S) losses of a batch are cut into blocks, with 0 and S.

    In each window, the tokens of a block share a bucket of positions, and they are all in the same
    span or in none.

    Args:
        batch: windows that score S tokens each.
        edges: ascending positions in the split at which a span starts or ends.
        loss_by_position: has the buckets of positions.
    """
    columns = {0, batch[0].num_scored, *loss_by_position.cuts(batch[0])}
    for window in batch:
        first_inside = bisect_right(edges, window.first_scored)
        end_inside = bisect_left(edges, window.stop)
        for edge in edges[first_inside:end_inside]:
            columns.add(edge - window.first_scored)
    return sorted(columns)


class LossByPosition:
    """Loss of scored tokens by position, in buckets.

    The position of a token is the size of its context: the number of inputs visible to its
    prediction. If the model remembers nothing from earlier windows, it is the position in the
    window, from 1, and not in the split.
    """

    def __init__(self):
        self._last_position = 0
        # Of each observation, by the end of the bucket.
        self._tokens: defaultdict[int, list[int]] = defaultdict(list)
        self._nats: defaultdict[int, list[float]] = defaultdict(list)

    def bucket(self, window: Window, index: int) -> int:
        """Return the end of the bucket of a window's scored token ``index``."""
        return bucket_end(window.first_context + index)

    def cuts(self, window: Window) -> list[int]:
        """Return the indices of a window's scored tokens where a bucket starts, without 0."""
        first = window.first_context
        cuts = []
        cut = bucket_end(first) + 1 - first
        while cut < window.num_scored:
            cuts.append(cut)
            cut = bucket_end(first + cut) + 1 - first
        return cuts

    def add(self, window: Window, begin: int, end: int, nats: float) -> None:
        """Add an observation: the loss of a window's scored tokens ``begin … end - 1``.

        They are all tokens of the window that are in one bucket, and in one document.
        """
        last = window.first_context + end - 1
        bucket = bucket_end(last)
        self._tokens[bucket].append(end - begin)
        self._nats[bucket].append(nats)
        self._last_position = max(self._last_position, last)

    def fields(self) -> dict:
        """Return the buckets up to the last position as fields of ``TextValues``, in bits."""
        ends = []
        tokens = []
        bits = []
        errors = []
        position = 1
        while position <= self._last_position:
            bucket = bucket_end(position)
            ends.append(min(bucket, self._last_position))
            tokens.append(sum(self._tokens[bucket]))
            bits.append(math.fsum(self._nats[bucket]) / math.log(2))
            errors.append(self._standard_error(bucket))
            position = bucket + 1
        return {
            "position_ends": tuple(ends),
            "position_tokens": tuple(tokens),
            "position_bits": tuple(bits),
            "position_errors": tuple(errors),
        }

    def _standard_error(self, bucket: int) -> float | None:
        """Return the standard error of the mean loss of a bucket; None of a single observation.

        The tokens of a window that are in one document are not independent. They are one
        observation of a ratio of two means: the loss and the number of tokens.
        """
        observations = len(self._nats[bucket])
        if observations < 2:
            return None
        tokens = sum(self._tokens[bucket])
        mean = math.fsum(self._nats[bucket]) / tokens
        squares = []
        for nats, num_tokens in zip(self._nats[bucket], self._tokens[bucket], strict=True):
            squares.append((nats - mean * num_tokens) ** 2)
        variance = math.fsum(squares) * observations / (observations - 1)
        return math.sqrt(variance) / tokens / math.log(2)


def bucket_end(position: int) -> int:
    """Return the last position of the bucket that a position belongs to.

    Buckets end at 1, 2, 3, 4, 6, 8, 12, 16, …: at the powers of two and halfway between them.
    """
    power = 1 << (position - 1).bit_length()
    halfway = 3 * power // 4
    return halfway if position <= halfway else power
