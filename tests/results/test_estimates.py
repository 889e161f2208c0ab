"""Differences between models and their intervals, compared with SciPy and with plain sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from alibi_fairseq.results.estimates import difference, t_quantile


@pytest.mark.parametrize("degrees_of_freedom", [1, 1.5, 2, 2.31, 4, 7.7, 30, 1000, math.inf])
@pytest.mark.parametrize("probability", [0.5, 0.6, 0.9, 0.975, 0.9833, 0.995])
def test_quantile_equals_that_of_scipy(probability, degrees_of_freedom):
    if math.isinf(degrees_of_freedom):
        expected = stats.norm.ppf(probability)
    else:
        expected = stats.t.ppf(probability, degrees_of_freedom)
    assert t_quantile(probability, degrees_of_freedom) == pytest.approx(expected, rel=1e-5)


def test_interval_over_seeds_is_that_of_welch():
    random = np.random.default_rng(1)
    first = random.normal(3.0, 0.1, (4, 1))
    second = random.normal(3.1, 0.3, (3, 1))
    welch = stats.ttest_ind(first[:, 0], second[:, 0], equal_var=False)
    estimate = difference(first, second, np.array([500.0]))
    assert estimate.value == pytest.approx(first.mean() - second.mean())
    expected = tuple(welch.confidence_interval(0.95))
    assert estimate.interval() == pytest.approx(expected, rel=1e-5)


def test_same_models_are_paired_by_seed():
    random = np.random.default_rng(2)
    first = random.normal(3.0, 0.5, (5, 1))
    second = first + random.normal(0.1, 0.01, (5, 1))
    paired = stats.ttest_rel(first[:, 0], second[:, 0])
    estimate = difference(first, second, np.array([500.0]), same_models=True)
    expected = tuple(paired.confidence_interval(0.95))
    assert estimate.interval() == pytest.approx(expected, rel=1e-5)


def test_documents_count_by_their_tokens():
    """The difference is that of the total losses, and documents are paired."""
    random = np.random.default_rng(3)
    tokens = np.array([100.0, 400.0, 50.0, 1000.0])
    easy = random.normal(0, 1, (1, 4))  # the same in both models
    first = 3 + easy + random.normal(0, 0.02, (3, 4))
    second = 3.2 + easy + random.normal(0, 0.02, (2, 4))
    estimate = difference(first, second, tokens)
    totals = [(losses * tokens).sum(axis=1) / tokens.sum() for losses in (first, second)]
    assert estimate.value == pytest.approx(totals[0].mean() - totals[1].mean())
    variance = sum(stats.sem(total) ** 2 for total in totals)
    documents = 0.0
    for index in range(4):
        change = first[:, index].mean() - second[:, index].mean() - estimate.value
        documents += (tokens[index] / tokens.sum() * change) ** 2
    variance += documents * 4 / 3
    assert estimate.standard_error == pytest.approx(math.sqrt(variance))


def test_one_seed_has_no_interval():
    assert difference(np.ones((1, 3)), np.ones((2, 3)), np.ones(3)) is None


def test_intervals_cover_the_true_difference():
    """Three seeds, twenty documents of different sizes, and no true difference."""
    random = np.random.default_rng(4)
    covered = 0
    for _ in range(1000):
        tokens = random.integers(100, 1000, 20).astype(float)
        losses = []
        for _ in range(2):
            losses.append(random.normal(0, 0.1, (3, 1)) + random.normal(0, 0.2, (1, 20)))
        low, high = difference(*losses, tokens).interval()
        covered += low < 0 < high
    assert 0.93 < covered / 1000 < 0.99
