"""Changes in perplexity with confidence intervals over seeds and documents.

The section "Statistics" of ``small_models/protocol.md`` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alibi_fairseq.results.estimates import (
    Difference,
    combine_variances,
    difference,
    nats_to_percent,
)

from .evaluation_key import EvaluationKey
from .losses import DocumentLosses, Losses


@dataclass(frozen=True)
class Estimate(Difference):
    """A change of log perplexity, in nats per token.

    Attributes:
        seeds: number of seeds of each group of models that the estimate uses.
    """

    seeds: tuple[int, ...]

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
    """Convert a change in perplexity in percent to nats per token."""
    return math.log1p(percent / 100)


def percent(nats: float) -> str:
    """Write a change in nats as a change in perplexity."""
    value = nats_to_percent(nats)
    digits = 0
    if abs(value) < 1:
        digits = 2
    elif abs(value) < 100:
        digits = 1
    return f"{value:+.{digits}f}%"


def estimate_change(first: DocumentLosses, second: DocumentLosses) -> Estimate | None:
    """Estimate how much higher the log perplexity of the first evaluation is.

    Two evaluations of the same models are paired by seed and document. Evaluations of different
    models are paired by document only.

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
    weights = np.ones(first_nats.shape[1])  # all documents have the same number of scored tokens
    change = difference(first_nats, second_nats, weights, same_models)
    if change is None:
        return None
    return Estimate(**vars(change), seeds=(len(first_nats), len(second_nats)))


def change_between(losses: Losses, first: EvaluationKey, second: EvaluationKey) -> Estimate | None:
    """Estimate the change from the second to the first evaluation; None if one is missing."""
    if first not in losses or second not in losses:
        return None
    return estimate_change(losses[first], losses[second])


def estimate_step(
    before: tuple[DocumentLosses, DocumentLosses], after: tuple[DocumentLosses, DocumentLosses]
) -> Estimate | None:
    """Estimate how much a change of log perplexity differs between two sets of models.

    All four evaluations are of different models, so each has its own variance of seeds. Documents
    are paired across all four.

    Args:
        before: the two evaluations that :func:`estimate_change` compares, of one set of models.
        after: the same two evaluations of another set.

    Returns:
        The change ``after`` minus the change ``before``, or None if an evaluation has fewer than
        two seeds.
    """
    signs = (1, -1, -1, 1)
    groups = (*after, *before)
    if min(len(group.seeds) for group in groups) < 2:
        return None
    by_document = np.zeros(groups[0].nats.shape[1])
    terms = []
    for sign, group in zip(signs, groups, strict=True):
        by_document += sign * group.nats.mean(axis=0)
        terms.append(_variance_of_mean(group.nats.mean(axis=1)))
    terms.append(_variance_of_mean(by_document))
    standard_error, degrees_of_freedom = combine_variances(terms)
    return Estimate(
        value=float(by_document.mean()),
        standard_error=standard_error,
        degrees_of_freedom=degrees_of_freedom,
        seeds=tuple(len(group.seeds) for group in groups),
    )


def _variance_of_mean(values: Sequence[float] | np.ndarray) -> tuple[float, int]:
    """Return the variance of the mean of independent values, and its degrees of freedom."""
    return float(np.var(values, ddof=1)) / len(values), len(values) - 1


def _of_seeds(losses: DocumentLosses, seeds: list[int]) -> np.ndarray:
    """Return the (S, K) losses of these seeds."""
    return losses.nats[[losses.seeds.index(seed) for seed in seeds]]
