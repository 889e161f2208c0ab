"""Changes of perplexity with confidence intervals over seeds and articles.

The section "Statistics" of ``small_models/protocol.md`` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .losses import ArticleLosses


@dataclass(frozen=True)
class Estimate:
    """A change of log perplexity, in nats per token.

    Attributes:
        value: estimated change; negative where the first evaluation has the lower perplexity.
        standard_error: of ``value``, from seeds and articles.
        degrees_of_freedom: of Student's t distribution, by Satterthwaite's approximation.
        seeds: number of seeds of each side.
    """

    value: float
    standard_error: float
    degrees_of_freedom: float
    seeds: tuple[int, int]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the two-sided confidence interval."""
        from scipy import stats

        quantile = stats.t.ppf((1 + level) / 2, self.degrees_of_freedom)
        margin = quantile * self.standard_error
        return self.value - margin, self.value + margin

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

    Two evaluations of the same models are paired by seed and article, those of different models by
    article only.

    Returns:
        None if either side has fewer than two seeds: the variance of seeds is then unknown.
    """
    if first.model == second.model:
        shared = sorted({*first.seeds} & {*second.seeds})
        differences = _of_seeds(first, shared) - _of_seeds(second, shared)  # (S, K)
        by_seed = [differences.mean(axis=1)]
        article_differences = differences.mean(axis=0)  # (K,)
    else:
        by_seed = [first.nats.mean(axis=1), second.nats.mean(axis=1)]
        article_differences = first.nats.mean(axis=0) - second.nats.mean(axis=0)  # (K,)
    if min(map(len, by_seed)) < 2:
        return None
    samples = [*by_seed, article_differences]
    # Variances of the mean over seeds of each side, and of the mean over articles.
    terms = [sample.var(ddof=1) / len(sample) for sample in samples]
    variance = sum(terms)
    weighted = [term**2 / (len(sample) - 1) for term, sample in zip(terms, samples)]
    # Welch–Satterthwaite approximation. Numerator and denominator are 0 for two evaluations of the
    # same windows.
    degrees_of_freedom = variance**2 / sum(weighted) if variance else math.inf
    return Estimate(
        value=float(article_differences.mean()),
        standard_error=math.sqrt(variance),
        degrees_of_freedom=float(degrees_of_freedom),
        seeds=(len(first.seeds), len(second.seeds)),
    )


def _of_seeds(losses: ArticleLosses, seeds: list[int]) -> np.ndarray:
    """Return the (S, K) losses of these seeds."""
    return losses.nats[[losses.seeds.index(seed) for seed in seeds]]
