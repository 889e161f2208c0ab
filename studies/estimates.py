"""Changes of perplexity with confidence intervals over seeds and articles.

The section "Statistics" of ``small_models/protocol.md`` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from alibi_fairseq.results.estimates import Difference, difference

from .losses import ArticleLosses


@dataclass(frozen=True)
class Estimate(Difference):
    """A change of log perplexity, in nats per token.

    Attributes:
        seeds: number of seeds of each side.
    """

    seeds: tuple[int, int]

    def p_above(self, bound: float) -> float:
        """Return the one-sided p value of "the change is at most ``bound``"."""
        from scipy import stats

        return float(stats.t.sf(self._t(bound), self.degrees_of_freedom))

    def p_below(self, bound: float) -> float:
        """Return the one-sided p value of "the change is at least ``bound``"."""
        from scipy import stats

        return float(stats.t.cdf(self._t(bound), self.degrees_of_freedom))

    def _t(self, bound: float) -> float:
        difference = self.value - bound
        if self.standard_error == 0:
            return math.copysign(math.inf, difference)
        return difference / self.standard_error


def percent_to_nats(percent: float) -> float:
    """Convert a change of perplexity in percent to nats per token."""
    return math.log1p(percent / 100)


def nats_to_percent(nats: float) -> float:
    """Convert a change in nats per token to a change of perplexity in percent."""
    return 100 * math.expm1(nats)


def estimate_change(first: ArticleLosses, second: ArticleLosses) -> Estimate | None:
    """Estimate how much higher the log perplexity of the first evaluation is.

    Two evaluations of the same models are paired by seed and article. Evaluations of different
    models are paired by article only.

    Returns:
        None if either side has fewer than two seeds: the variance of seeds is then unknown.
    """
    same_models = first.model == second.model
    first_nats = first.nats
    second_nats = second.nats
    if same_models:
        shared = sorted({*first.seeds} & {*second.seeds})
        first_nats = _of_seeds(first, shared)
        second_nats = _of_seeds(second, shared)
    weights = np.ones(first_nats.shape[1])  # all articles have the same number of scored tokens
    change = difference(first_nats, second_nats, weights, same_models)
    if change is None:
        return None
    return Estimate(**vars(change), seeds=(len(first.seeds), len(second.seeds)))


def _of_seeds(losses: ArticleLosses, seeds: list[int]) -> np.ndarray:
    """Return the (S, K) losses of these seeds."""
    return losses.nats[[losses.seeds.index(seed) for seed in seeds]]
