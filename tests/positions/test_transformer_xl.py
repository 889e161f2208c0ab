"""Transformer-XL compared with a naive double loop over the paper's four terms, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from attention_calls import assert_same_gradients
from conftest import random_tokens, small_model

from alibi_fairseq.attention import FutureMask, eager
from alibi_fairseq.models.self_attention import AttentionContext
from alibi_fairseq.positions.transformer_xl import RelativeTerms

LENGTH = 6
MEMORY_LENGTH = 4
BATCH = 2


def xl_model(*flags: str, heads: int = 2):
    """Build a model with large relative terms, which are near zero at the start of training."""
    model = small_model("transformer_xl", *flags, heads=heads, sequential=True)
    for parameter in model.decoder.embed_positions.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def naive_attention(attention, method, layer: int, x, memory):
    """Compute section 3.3 of the paper, key by key, for (T, B, C) inputs and (M, B, C) memory."""
    heads = attention.num_heads
    size = attention.head_dim
    width = x.shape[2]
    states = torch.cat([memory, x])
    q = attention.q_proj(x).unflatten(-1, (heads, size))  # (T, B, H, D)
    k = attention.k_proj(states).unflatten(-1, (heads, size))  # (M + T, B, H, D)
    v = attention.v_proj(states).unflatten(-1, (heads, size))
    speeds = [10000 ** (-2 * t / width) for t in range(width // 2)]
    rows = []
    for i in range(len(x)):
        scores = []
        for j in range(len(memory) + i + 1):
            distance = len(memory) + i - j
            sinusoid = [math.sin(distance * speed) for speed in speeds]
            sinusoid += [math.cos(distance * speed) for speed in speeds]
            r = (method.layers[layer].weight @ torch.tensor(sinusoid).to(x)).view(heads, size)
            a = q[i] * k[j]
            b = q[i] * r
            c = method.u * k[j]
            d = method.v * r
            scores.append((a + b + c + d).sum(-1) / math.sqrt(size))  # (B, H)
        weights = torch.stack(scores).softmax(0)[..., None]
        rows.append((weights * v[: len(scores)]).sum(0).flatten(1))
    return attention.out_proj(torch.stack(rows))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("memory_length", [0, MEMORY_LENGTH])
@pytest.mark.parametrize("heads", [1, 6])
def test_values_and_gradients_match_paper_terms(heads, memory_length, backend, monkeypatch):
    monkeypatch.setattr(eager, "QUERY_BLOCK", 4)  # so that blocks do not end where the tokens do
    model = xl_model(heads=heads).double()
    attention = model.decoder.layers[1].self_attn
    method = model.decoder.embed_positions
    attention.backend = backend
    x = torch.randn(LENGTH, BATCH, 8 * heads, dtype=torch.float64, requires_grad=True)
    earlier = torch.randn(memory_length, BATCH, 8 * heads, dtype=torch.float64)
    keys = memory_length + LENGTH
    mask = FutureMask(method.bias(1, keys), LENGTH, keys)
    context = AttentionContext(mask, method, number=1, earlier=earlier)
    output, _ = attention(x, attn_mask=context, need_weights=backend == "eager")
    expected = naive_attention(attention, method, 1, x, earlier)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)  # fp32 sinusoids

    inputs = [x, *attention.parameters(), method.u, method.v, method.layers[1].weight]
    assert_same_gradients(output, expected, inputs)


@torch.no_grad()
def test_context_grows_by_one_memory_per_layer():
    # Two layers and 5 states each: the text before the last 2 · 5 + 1 tokens cannot matter.
    model = xl_model("--mem-len", "5")

    def last_scores(tokens):
        state = None
        for segment in tokens.split(1, dim=1):
            scores, extra = model.decoder(segment, state=state)
            state = extra["state"]
        return scores

    tokens = random_tokens(1, 30)
    far = tokens.clone()
    near = tokens.clone()
    far[:, :19] = random_tokens(1, 19)
    near[:, 19] = tokens[:, 19] % 60 + 4
    assert torch.equal(last_scores(tokens), last_scores(far))
    assert not torch.equal(last_scores(tokens), last_scores(near))


def test_memory_has_fixed_storage_and_no_gradient():
    _, extra = xl_model("--mem-len", "3").decoder(random_tokens(2, 50))
    for inputs in extra["state"]:
        assert not inputs.requires_grad
        assert inputs.untyped_storage().nbytes() == inputs.numel() * inputs.element_size()


@torch.no_grad()
def test_bias_is_computed_per_query_block(monkeypatch):
    sizes = []
    block = RelativeTerms.block

    def recorded(self, q, k, first_position):
        sizes.append(q.shape[2])
        return block(self, q, k, first_position)

    monkeypatch.setattr(RelativeTerms, "block", recorded)
    xl_model("--attention-backend", "sdpa")(random_tokens(1, 900))
    assert max(sizes) <= eager.QUERY_BLOCK < 900 <= sum(sizes) / 2


def test_unusable_memory_is_rejected():
    state = [torch.zeros(4, 1, 64)] * 2
    with pytest.raises(ValueError, match="A state needs a position method with a memory"):
        small_model("alibi").decoder(random_tokens(1, 8), state=state)
    with pytest.raises(ValueError, match="and no cached keys"):
        xl_model("--mem-len", "4").decoder(random_tokens(1, 8), state=state, incremental_state={})
