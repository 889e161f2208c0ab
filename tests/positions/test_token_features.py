"""Methods with features of the tokens, compared with a loop over queries and keys in float64."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model
from feature_methods import MixedDistance, SelectiveRotation, slopes_of

from alibi_fairseq.blocks import CausalAttention
from alibi_fairseq.positions import METHODS, PositionConfig

#: Largest difference relative to the largest expected number.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
HEAD_DIM = 8
LENGTH = 23


def attention_of(method, heads: int, key_heads: int, layer: int = 0) -> CausalAttention:
    torch.manual_seed(4)
    config = PositionConfig(HEAD_DIM * heads, heads, layer + 1, 16, key_value_heads=key_heads)
    return CausalAttention(method(config), layer)


def naive(attention: CausalAttention, x: torch.Tensor, score) -> torch.Tensor:
    """Attend from each token to itself and earlier ones, with a function for one score.

    Args:
        x: (B, T, C).
        score: function of a query and a key (B, D), their positions and the query head.
    """
    q = attention.split_heads(attention.q_proj(x))  # (B, H, T, D)
    k = attention.split_heads(attention.k_proj(x))  # (B, G, T, D)
    v = attention.split_heads(attention.v_proj(x))
    group = q.shape[1] // k.shape[1]
    outputs = []
    for head in range(q.shape[1]):
        for i in range(x.shape[1]):
            scores = []
            for j in range(i + 1):
                scores.append(score(q[:, head, i], k[:, head // group, j], i, j, head))
            weights = torch.stack(scores, dim=-1).softmax(-1)  # (B, i + 1)
            outputs.append((weights[..., None] * v[:, head // group, : i + 1]).sum(1))
    stacked = torch.stack(outputs, dim=1).unflatten(1, (q.shape[1], -1))  # (B, H, T, D)
    return attention.out_proj(stacked.transpose(1, 2).flatten(2))


def rotated_score(attention, x):
    """Return the score of selective rotation, which turns the query by the angles in between."""
    method = attention.positions
    group = method.config.num_heads // method.config.num_key_value_heads
    steps = method.layers[0](x).unflatten(-1, (-1, HEAD_DIM // 2))  # (B, T, G, D/2)

    def score(q, k, i, j, head):
        angle = steps[:, j + 1 : i + 1, head // group].sum(1)  # (B, D/2)
        query = torch.complex(*q.chunk(2, dim=-1))
        key = torch.complex(*k.chunk(2, dim=-1))
        turned = query * torch.polar(torch.ones_like(angle), angle)
        return (turned * key.conj()).real.sum(-1) / HEAD_DIM**0.5

    return score


def mixed_score(attention, x):
    method = attention.positions
    heads = method.config.num_heads
    features = method.projection(x).sigmoid().unflatten(-1, (heads, 2))  # (B, T, H, 2)
    slopes = slopes_of(heads).flatten()

    def score(q, k, i, j, head):
        strength = features[:, i, head, 0] + features[:, j, head, 1]
        return (q * k).sum(-1) / HEAD_DIM**0.5 - slopes[head] * (i - j) * strength

    return score


@pytest.mark.ci
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (4, 2), (6, 3), (3, 1)])
@pytest.mark.parametrize(
    ("method", "score_of"), [(SelectiveRotation, rotated_score), (MixedDistance, mixed_score)]
)
def test_values_and_gradients_match_formula(method, score_of, heads, key_heads, dtype):
    attention = attention_of(method, heads, key_heads).to(dtype)
    exact = attention_of(method, heads, key_heads).double()
    exact.load_state_dict(attention.state_dict())
    x = torch.randn(2, LENGTH, HEAD_DIM * heads).to(dtype)
    gradient = torch.randn(2, LENGTH, HEAD_DIM * heads).to(dtype)

    double = x.double().requires_grad_()
    expected = naive(exact, double, score_of(exact, double))
    expected.backward(gradient.double())
    x.requires_grad_()
    output, _ = attention(x)
    output.backward(gradient)

    results = {"output": (output, expected), "x": (x.grad, double.grad)}
    for (name, weight), exact_weight in zip(attention.named_parameters(), exact.parameters()):
        if "k_proj.bias" not in name:  # softmax ignores what all keys share, but for rounding
            results[name] = (weight.grad, exact_weight.grad)
    for name, (actual, right) in results.items():
        error = (actual.double() - right).abs().max() / right.abs().max()
        assert error < (1 if name == "output" else 4) * TOLERANCE[dtype], (name, error)


@pytest.mark.parametrize("method", [SelectiveRotation, MixedDistance])
@torch.no_grad()
def test_cached_tokens_and_memory_change_nothing(method):
    attention = attention_of(method, 4, 2)
    x = torch.randn(2, LENGTH, 4 * HEAD_DIM)
    expected, _ = attention(x)
    first, cache = attention(x[:, :10])
    second, cache = attention(x[:, 10:15], cache)
    third, _ = attention(x[:, 15:], cache)
    parts = torch.cat([first, second, third], dim=1)
    torch.testing.assert_close(parts, expected, rtol=0, atol=1e-6)
    last, _ = attention(x[:, 15:], earlier=x[:, :15])
    torch.testing.assert_close(last, expected[:, 15:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", [SelectiveRotation, MixedDistance])
@torch.no_grad()
def test_decoder_computes_only_the_last_positions(method, monkeypatch):
    monkeypatch.setitem(METHODS, "mine", method)
    decoder = small_model("mine", "--key-value-heads", "2").decoder
    tokens = random_tokens(2, LENGTH)
    expected, _ = decoder.extract_features(tokens)
    features, _ = decoder.extract_features(tokens, last=4)
    torch.testing.assert_close(features, expected[:, -4:], rtol=0, atol=1e-6)


def test_layer_without_features_has_no_bias():
    attention = attention_of(MixedDistance, 4, 4, layer=1)
    x = torch.randn(2, LENGTH, 4 * HEAD_DIM)
    unbiased = attention_of(METHODS["none"], 4, 4, layer=1)
    unbiased.load_state_dict(attention.state_dict(), strict=False)
    assert torch.equal(attention(x)[0], unbiased(x)[0])
