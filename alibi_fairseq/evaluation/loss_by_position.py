"""Loss by position, in buckets.

The position of a token is the size of its context: the number of inputs visible to its prediction.
If the model remembers nothing from earlier windows, it is the position in the window, from 1, and
not in the split.
"""

from __future__ import annotations

import math
from collections import defaultdict

from .windows import Window


def bucket_end(position: int) -> int:
    """Return the last position of the bucket that a position belongs to.

    Buckets end at 1, 2, 3, 4, 6, 8, 12, 16, …: at the powers of two and halfway between them.
    """
    power = 1 << (position - 1).bit_length()
    halfway = 3 * power // 4
    return halfway if position <= halfway else power


class LossByPosition:
    """Loss of scored tokens by position."""

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
