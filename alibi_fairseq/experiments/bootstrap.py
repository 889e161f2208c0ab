"""Changes of perplexity between models, with intervals over seeds and documents.

Every model is trained with several seeds and tested on the same documents, so a difference between
two conditions has two sources of chance. A draw takes documents with replacement, the same for all
models, and seeds with replacement, the same for both conditions only where these are evaluations of
the same models. The loss of a draw is the mean over its seeds of the bits of its documents over their
tokens. What documents and seeds do to each other is counted on both sides, so intervals are rather
too wide than too narrow.

Shapes: K seeds, D documents, R draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 4000
#: Of a two-sided interval.
LEVEL = 0.95


@dataclass(frozen=True)
class Losses:
    """One evaluation of the models that differ in the seed only."""

    model: tuple  # e.g. ("wikipedia", "alibi", 128)
    seeds: tuple[int, ...]
    bits: np.ndarray  # (K, D) sums of the losses of each document
    tokens: np.ndarray  # (D,) scored in each document

    @property
    def loss(self) -> np.ndarray:
        """(K,) bits per token."""
        return self.bits.sum(axis=1) / self.tokens.sum()


@dataclass(frozen=True)
class Interval:
    """A number with its interval."""

    value: float
    low: float
    high: float

    def within(self, low: float, high: float) -> bool:
        """Whether all of the interval lies there."""
        return low <= self.low and self.high <= high


def change(one: Losses, other: Losses) -> Interval:
    """Perplexity of ``one`` relative to ``other`` minus 1: −0.1 is 10 % lower.

    Perplexities of several seeds are averaged geometrically.

    Raises:
        ValueError: the two are not of the same tokens, or of the same models with different seeds.
    """
    if not np.array_equal(one.tokens, other.tokens):
        raise ValueError("The two evaluations are not of the same tokens.")
    same = one.model == other.model
    if same and one.seeds != other.seeds:
        raise ValueError("The two evaluations of the same models are not of the same seeds.")
    random = np.random.default_rng(1)
    documents = len(one.tokens)
    times = random.multinomial(documents, np.full(documents, 1 / documents), size=DRAWS)  # (R, D)
    counts = (len(one.bits), len(other.bits))
    first, second = (random.integers(count, size=(DRAWS, count)) for count in counts)  # (R, K)
    drawn = _drawn(one, times, first) - _drawn(other, times, first if same else second)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    value = one.loss.mean() - other.loss.mean()
    return Interval(*(float(2.0**each - 1) for each in (value, low, high)))


def speed_up(one: Sequence[float], other: Sequence[float]) -> Interval:
    """The speed of ``one`` relative to ``other`` minus 1: 0.1 is 10 % faster.

    The median over rounds of the ratio within a round; the interval is over the choice of rounds.

    Args:
        one, other: (R,) seconds measured in the same rounds.
    """
    ratios = np.array(other) / np.array(one)
    taken = np.random.default_rng(1).integers(len(ratios), size=(DRAWS, len(ratios)))
    medians = np.median(ratios[taken], axis=1) - 1
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(np.median(ratios)) - 1, float(low), float(high))


def _drawn(losses: Losses, times: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """(R,) bits per token of the draws.

    Means of K seeds drawn from K vary by less than means of K new ones, by K − 1 over K; the
    deviations of seeds are widened to make up for it.
    """
    of_seed = (times @ losses.bits.T) / (times @ losses.tokens)[:, None]  # (R, K)
    mean = of_seed.mean(axis=1)  # (R,)
    drawn = np.take_along_axis(of_seed, seeds, axis=1).mean(axis=1)
    count = of_seed.shape[1]
    return mean + (drawn - mean) * np.sqrt(count / max(1, count - 1))
