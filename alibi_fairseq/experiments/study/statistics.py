"""Intervals over documents: what would have come out with other documents of the same kind.

Documents are drawn with replacement, and the loss of a draw is the sum of the bits of its documents
over the sum of their tokens. Two models are compared on the same draws, since they saw the same text:
most of the spread between documents cancels.

Shapes: D documents, R draws (rounds in speeds).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

DRAWS = 4000
#: Of a two-sided interval.
LEVEL = 0.95


@dataclass(frozen=True)
class Sums:
    """Of one evaluation, by document.

    Attributes:
        bits: (D,) losses.
        tokens: (D,).
    """

    bits: np.ndarray
    tokens: np.ndarray

    @property
    def loss(self) -> float:
        """Bits per token."""
        return float(self.bits.sum() / self.tokens.sum())

    @property
    def perplexity(self) -> float:
        return 2.0**self.loss


@dataclass(frozen=True)
class Interval:
    """A number with its interval."""

    value: float
    low: float
    high: float


def draws(documents: int, seed: int = 1) -> np.ndarray:
    """(R, D) how often each draw takes each document."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(documents, np.full(documents, 1 / documents), size=DRAWS)


def perplexity(one: Sums) -> Interval:
    """A perplexity with its interval."""
    drawn = 2.0 ** _losses(one, draws(len(one.bits)))
    return _interval(one.perplexity, drawn)


def change(one: Sums, other: Sums) -> Interval:
    """Perplexity of ``one`` relative to ``other`` minus 1: −0.1 is 10 % lower.

    Both must be of the same documents.
    """
    if not np.array_equal(one.tokens, other.tokens):
        raise ValueError("The two evaluations are not of the same tokens.")
    times = draws(len(one.bits))
    drawn = 2.0 ** (_losses(one, times) - _losses(other, times)) - 1
    return _interval(2.0 ** (one.loss - other.loss) - 1, drawn)


def speed_up(one: np.ndarray, other: np.ndarray) -> Interval:
    """The speed of ``one`` relative to ``other`` minus 1: 0.1 is 10 % faster.

    The median over rounds of the ratio within a round; the interval is over the choice of rounds.

    Args:
        one, other: (R,) speeds measured in the same rounds.
    """
    ratios = one / other
    taken = np.random.default_rng(1).integers(len(ratios), size=(DRAWS, len(ratios)))
    return _interval(float(np.median(ratios)) - 1, np.median(ratios[taken], axis=1) - 1)


def _losses(one: Sums, times: np.ndarray) -> np.ndarray:
    return (times @ one.bits) / (times @ one.tokens)  # (R,)


def _interval(value: float, drawn: np.ndarray) -> Interval:
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))
