"""Intervals over documents against other code and known distributions."""

from __future__ import annotations

import numpy as np
import pytest

from alibi_fairseq.experiments.study.outcomes import Sums, change, perplexity

stats = pytest.importorskip("scipy.stats")


def sums(losses: np.ndarray, tokens: np.ndarray) -> Sums:
    return Sums(losses * tokens, tokens)


@pytest.fixture
def two():
    generator = np.random.default_rng(3)
    tokens = generator.integers(500, 3000, size=25)
    losses = 7 + generator.normal(0, 0.5, size=25)
    better = losses - 0.05 + generator.normal(0, 0.03, size=25)
    return sums(losses, tokens), sums(better, tokens)


def test_a_perplexity_has_the_interval_of_scipys_bootstrap(two):
    one, _ = two
    found = perplexity(one)
    assert found.value == pytest.approx(2 ** (one.bits.sum() / one.tokens.sum()))
    theirs = stats.bootstrap(
        (one.bits, one.tokens),
        lambda bits, tokens, axis: 2 ** (bits.sum(axis) / tokens.sum(axis)),
        paired=True,
        method="percentile",
        n_resamples=4000,
        vectorized=True,
        rng=np.random.default_rng(5),
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=0.01)


def test_a_change_is_paired(two):
    one, better = two
    found = change(better, one)
    assert found.value == pytest.approx(2 ** (better.loss - one.loss) - 1)
    assert found.high < 0
    # Unpaired, the spread between documents would hide it.
    assert perplexity(better).high > perplexity(one).low
    assert change(one, one).value == 0 and change(one, one).high >= 0


def test_nine_in_ten_or_more_intervals_hold_the_truth():
    generator = np.random.default_rng(11)
    tokens, hits = np.full(30, 1000), 0
    for _ in range(100):
        differences = generator.normal(-0.02, 0.05, size=30)
        base = generator.normal(6, 0.4, size=30)
        found = change(sums(base + differences, tokens), sums(base, tokens))
        hits += found.low <= 2**-0.02 - 1 <= found.high
    assert 88 <= hits <= 100


def test_other_tokens_are_refused(two):
    one, _ = two
    with pytest.raises(ValueError, match="not of the same tokens"):
        change(one, Sums(one.bits, one.tokens + 1))
