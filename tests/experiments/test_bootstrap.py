"""Intervals over seeds and documents."""

import numpy as np
import pytest

from alibi_fairseq.experiments.bootstrap import Losses, change, speed_up


def losses(model, of_seed, of_document, noise=0.0, random=None):
    """Models whose loss per token is the sum of a part of the seed and a part of the document."""
    tokens = np.full(len(of_document), 100)
    loss = np.add.outer(np.array(of_seed), np.array(of_document))
    if noise:
        loss = loss + random.normal(0, noise, loss.shape)
    return Losses((model,), tuple(range(len(of_seed))), loss * tokens, tokens)


def test_change_is_the_ratio_of_geometric_means():
    one, other = losses("a", [1.0, 1.2, 1.4], [3.0, 4.0]), losses("b", [1.1, 1.1, 1.1], [3.0, 4.0])
    ratio = np.prod(2.0 ** (one.loss / 3)) / np.prod(2.0 ** (other.loss / 3))
    assert change(one, other).value == pytest.approx(ratio - 1)


def test_other_tokens_or_seeds_are_not_compared():
    one = losses("a", [1.0, 2.0], [3.0, 4.0])
    with pytest.raises(ValueError, match="tokens"):
        change(one, losses("b", [1.0, 2.0], [3.0, 4.0, 5.0]))
    with pytest.raises(ValueError, match="seeds"):
        change(one, losses("a", [1.0], [3.0, 4.0]))


def test_intervals_cover_what_they_say():
    """Models that differ by chance only: 0 lies in about 95 of 100 intervals."""
    random, covered = np.random.default_rng(0), 0
    for _ in range(150):
        documents = random.normal(5, 1, 30)
        one, other = (
            losses(name, random.normal(0, 0.02, 5), documents, noise=0.02, random=random)
            for name in "ab"
        )
        found = change(one, other)
        covered += found.low <= 0 <= found.high
    assert 0.86 <= covered / 150 <= 0.99


def test_speeds_are_compared_within_rounds():
    slow_rounds = np.array([1.0, 5.0, 1.0, 1.1, 9.0])
    found = speed_up(slow_rounds, 2 * slow_rounds)
    assert (found.value, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))
