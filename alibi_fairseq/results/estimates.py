"""Differences between models with confidence intervals over seeds and documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Difference:
    """A difference of mean loss, in nats per token.

    Attributes:
        value: the estimate; negative where the first model has the lower loss.
        standard_error: of ``value``, from seeds and documents.
        degrees_of_freedom: of Student's t distribution, by Satterthwaite's approximation.
    """

    value: float
    standard_error: float
    degrees_of_freedom: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the two-sided confidence interval."""
        margin = t_quantile((1 + level) / 2, self.degrees_of_freedom) * self.standard_error
        return self.value - margin, self.value + margin


def difference(
    first: np.ndarray, second: np.ndarray, weights: np.ndarray, same_models: bool = False
) -> Difference | None:
    """Estimate how much higher the loss of the first models is.

    Args:
        first: (S, K) mean loss per token of each seed on each document.
        second: (S', K) losses of the second models on the same documents.
        weights: (K,) tokens of each document. With one document, the interval is over seeds only.
        same_models: True if the rows are two evaluations of the same models, in the same order of
            seeds.

    Returns:
        None if either side has fewer than two seeds: the variance of seeds is then unknown.
    """
    if min(len(first), len(second)) < 2:
        return None
    weights = weights / weights.sum()
    by_document = first.mean(axis=0) - second.mean(axis=0)  # (K,)
    value = float(weights @ by_document)
    sides = [first - second] if same_models else [first, second]
    by_seed = [losses @ weights for losses in sides]
    # Variances of the means over the seeds of each side, and their degrees of freedom.
    terms = [(losses.var(ddof=1) / len(losses), len(losses) - 1) for losses in by_seed]
    num_documents = len(weights)
    if num_documents > 1:
        squares = (weights * (by_document - value)) ** 2
        terms.append((squares.sum() * num_documents / (num_documents - 1), num_documents - 1))
    return Difference(value, *combine_variances(terms))


def combine_variances(terms: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the standard error of a sum, and its degrees of freedom by Satterthwaite's formula.

    Args:
        terms: variance and degrees of freedom of each independent part of the sum.
    """
    variance = sum(term for term, _ in terms)
    if not variance:  # as for two evaluations of the same windows
        return 0.0, math.inf
    degrees_of_freedom = variance**2 / sum(term**2 / degrees for term, degrees in terms)
    return math.sqrt(variance), float(degrees_of_freedom)


def nats_to_percent(nats: float) -> float:
    """Convert a change in nats per token to a change in perplexity in percent."""
    return 100 * math.expm1(nats)


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return a quantile above the median of Student's t distribution.

    SciPy is not needed for this one function. The substitution t = sqrt(n) tan(a) makes the
    density proportional to cos(a)^(n - 1), which is integrated by Simpson's rule.

    Args:
        probability: from 0.5 to 1, exclusive.
        degrees_of_freedom: n, at least 1; need not be an integer.
    """
    n = min(degrees_of_freedom, 1e6)  # the normal distribution, to six digits
    # From here on, the density is below 1e-30 of its maximum.
    end = min(math.pi / 2, 12 / math.sqrt(n))
    angles = np.linspace(0, end, 20_001)
    density = np.exp((n - 1) * np.log(np.cos(angles[:-1])))
    density = np.append(density, math.cos(end) ** (n - 1) if n > 1 else 1.0)
    step = angles[1]
    panels = step / 3 * (density[:-2:2] + 4 * density[1:-1:2] + density[2::2])
    cumulative = np.concatenate([[0.0], np.cumsum(panels)])
    target = (2 * probability - 1) * cumulative[-1]
    angle = np.interp(target, cumulative, angles[::2])
    return math.sqrt(n) * math.tan(angle)
