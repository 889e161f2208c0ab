"""Recall in natural text: the loss of tokens that complete a pair already seen in their window.

A token completes an earlier pair if the token before it and itself stand next to each other earlier
in the window, as in the second "York" of "New York … New York". Its distance is the number of
tokens since the last such place. A model that no longer reads so far back loses there what it knew,
while its mean loss hardly shows it.

Source of the idea: Arora et al. 2024, "Zoology" (https://arxiv.org/abs/2312.04927), which calls
these tokens associative-recall hits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .checkpoint import LoadedModel
from .scoring import SplitTensors, score_batches
from .windows import Window, plan_windows

#: Ratio of the ends of neighboring ranges of the distance: 1 to 3, 4 to 15, 16 to 63, …
RATIO = 4


@dataclass(frozen=True)
class DistanceRange:
    """Tokens whose distance to the earlier pair is in a range, or that complete none.

    Attributes:
        first, last: smallest and largest distance; 0 for tokens that complete no earlier pair.
        tokens: number of tokens.
        loss_bits: their mean loss in bits; None without any.
    """

    first: int
    last: int
    tokens: int
    loss_bits: float | None


def distance_ranges(length: int) -> list[tuple[int, int]]:
    """Return the first and last distance of each range in windows of a length.

    The first range, 0 to 0, stands for tokens that complete no earlier pair.
    """
    ranges = [(0, 0)]
    first = 1
    while first < length:
        ranges.append((first, min(RATIO * first, length) - 1))
        first *= RATIO
    return ranges


def previous_occurrences(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return for each position the last earlier one with the same input and target, or −1.

    Args:
        inputs: (N,) input at each position, which is the token before the target.
        targets: (N,) token to predict at each position.
    """
    pairs = inputs * (targets.max() + 1) + targets  # one number per pair
    order = np.argsort(pairs, kind="stable")  # equal pairs, in order of positions
    previous = np.full(len(targets), -1)
    is_same = pairs[order[1:]] == pairs[order[:-1]]
    previous[order[1:][is_same]] = order[:-1][is_same]
    return previous


def distances_in(window: Window, previous: np.ndarray) -> np.ndarray:
    """Return the distance of each scored token of a window, 0 where it completes no earlier pair.

    Args:
        previous: :func:`previous_occurrences`.
    """
    positions = np.arange(window.first_scored, window.stop)
    earlier = previous[window.first_scored : window.stop]
    return np.where(earlier >= window.start, positions - earlier, 0)


def measure_recall(
    model: LoadedModel,
    tensors: SplitTensors,
    length: int,
    progress: Callable[[int], object] = lambda inputs: None,
) -> list[DistanceRange]:
    """Return the loss of a split's tokens by the distance to the pair that they complete.

    Args:
        model: the model.
        tensors: the split on the device of the model.
        length: inputs of a window, all of which it scores.
        progress: called with the number of inputs after each batch.

    Raises:
        UserInputError: a loss is not finite.
    """
    inputs = tensors.inputs.cpu().numpy()
    targets = tensors.targets.cpu().numpy()
    previous = previous_occurrences(inputs, targets)
    windows = plan_windows(len(targets), length, length, memory_length=model.memory_length)
    batch_size = model.windows_per_batch(length, tensors.inputs.device, None)
    batches = model.make_batches(windows, batch_size)
    ranges = distance_ranges(length)
    firsts = np.array([first for first, _ in ranges])
    tokens = np.zeros(len(ranges), dtype=np.int64)
    nats: list[list[float]] = [[] for _ in ranges]
    for batch, losses in score_batches(model.scorer(), tensors, batches):
        for window, of_window in zip(batch, losses.cpu().numpy(), strict=True):
            numbers = np.searchsorted(firsts, distances_in(window, previous), side="right") - 1
            tokens += np.bincount(numbers, minlength=len(ranges))
            for number, total in enumerate(np.bincount(numbers, of_window, len(ranges))):
                nats[number].append(total)
        progress(len(batch) * batch[0].length)
    measured = []
    for (first, last), count, sums in zip(ranges, tokens.tolist(), nats, strict=True):
        loss_bits = math.fsum(sums) / count / math.log(2) if count else None
        measured.append(DistanceRange(first, last, count, loss_bits))
    return measured
