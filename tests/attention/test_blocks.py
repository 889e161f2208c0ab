"""Attention dropout and learned biases, computed again in the backward pass."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call, assert_close, results

from alibi_fairseq.attention import attend
from alibi_fairseq.attention.eager import bounded_block
from alibi_fairseq.positions.alibi import LinearBias


def with_seed(call: Call, backend: str, dropout_p: float):
    torch.manual_seed(3)
    mask = call.mask()  # a learned bias starts random
    torch.manual_seed(5)
    return results(call, backend, mask, dropout_p)


@pytest.mark.parametrize("method", ["alibi", "none", "t5", "transformer_xl"])
@pytest.mark.parametrize("cached", [0, 40])
def test_dropout_equals_the_reference_with_the_same_random_state(method, cached):
    call = Call(method=method, length=600, heads=2, cached=cached)
    found, expected = with_seed(call, "sdpa", 0.3), with_seed(call, "eager", 0.3)
    assert_close(found, expected, 1e-6)
    other = with_seed(call, "sdpa", 0.0)
    assert (found[0] - other[0]).abs().max() > 0.01, "nothing was dropped"


def test_dropout_keeps_the_mean():
    call = Call(length=40, heads=2)
    expected = with_seed(call, "sdpa", 0.0)[0]
    drawn = [results(call, "sdpa", None, 0.2)[0] for _ in range(400)]
    error = (torch.stack(drawn).mean(0) - expected).abs().mean()
    assert error < 0.03


def test_no_randomness_is_used_without_dropout():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    results(Call(length=100), "auto")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_random_state_after_the_backward_pass_is_that_of_the_reference():
    """So that a run with one backend continues as a run with the other would."""
    states = []
    for backend in ("eager", "sdpa"):
        torch.manual_seed(1)
        results(Call(length=600, heads=2), backend, None, 0.1)
        states.append(torch.rand(3))
    assert torch.equal(*states)


def test_dropout_in_evaluation_needs_no_graph():
    q, k, v, _ = Call(length=300).tensors()
    torch.manual_seed(5)
    with torch.no_grad():
        out, _ = attend(q, k, v, Call().mask(), 0.3)
    torch.manual_seed(5)
    expected, _ = attend(q, k, v, Call().mask(), 0.3, backend="eager")
    torch.testing.assert_close(out, expected)


def test_the_bias_is_computed_once_for_all_blocks_and_layers(monkeypatch):
    """Also in training, unless it is learned."""
    computed, at = [], LinearBias.at
    monkeypatch.setattr(LinearBias, "at", lambda *call: computed.append(call) or at(*call))
    call = Call(length=600, heads=2)
    mask = call.mask()
    for _ in range(2):
        results(call, "sdpa", mask)
    assert len(computed) == 1


@pytest.mark.parametrize(
    ("heads", "keys", "queries"), [(1, 8192, 256), (1, 8193, 128), (16, 600, 128), (1024, 9999, 16)]
)
def test_blocks_fit_into_the_memory_for_scores(heads, keys, queries):
    """2^21 of them, as long as a block has more than 16 queries."""
    q = torch.empty(2, heads // 2, 300, 1) if heads > 1 else torch.empty(1, 1, 300, 1)
    assert bounded_block(q, keys) == queries
