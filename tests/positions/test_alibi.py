"""ALiBi's slopes and bias compared with BLOOM and MPT."""

from __future__ import annotations

import pytest
import torch
from attention_calls import assert_same_gradients
from conftest import random_tokens, small_model
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import PositionConfig, alibi_slopes, build_position_method
from alibi_fairseq.positions.alibi import LinearBias

CPU = torch.device("cpu")
TRAIN_LENGTH = 32


@pytest.mark.parametrize("bias_max", [4, 8, 16])
def test_slopes_match_bloom_and_mpt(bias_max):
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]  # as in the paper
    for heads in range(1, 129):
        slopes = alibi_slopes(heads, bias_max)
        mpt = build_mpt_alibi_tensor(heads, 2, alibi_bias_max=bias_max)  # (H, 1, 2), keys −1 and 0
        torch.testing.assert_close(slopes, -mpt.view(heads, 2)[:, 0])
        if bias_max == 8:
            bloom = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)  # (H, 1, 2)
            torch.testing.assert_close(slopes, bloom[:, 0, 1])  # slope · key
        config = PositionConfig(heads, heads, 1, 16, alibi_bias_max=bias_max)
        bias = build_position_method("alibi", config).bias(0, 16)
        torch.testing.assert_close(bias.slopes(CPU), slopes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bias_is_precise_near_query_in_half_precision(dtype):
    # The authors' form slope·key at key 16,383 is a multiple of 4 in fp16 (32 in bf16): a query
    # cannot distinguish neighboring keys. The relative form can, at any query position.
    bias = LinearBias(8).at(torch.arange(8)).to(dtype).double()  # (H, 8)
    exact = -alibi_slopes(8).double()[:, None] * torch.arange(8)
    torch.testing.assert_close(bias, exact, rtol=0, atol=0)


BATCH = 2
LENGTH = 50
HEAD_DIM = 8


@pytest.mark.parametrize("left_padding", [0, 7])
@pytest.mark.parametrize("heads", [1, 12])
def test_attention_matches_bloom(heads, left_padding):
    q, k, v = torch.randn(3, BATCH, heads, LENGTH, HEAD_DIM, dtype=torch.float64).requires_grad_()
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    real[0, :left_padding] = False
    hidden = ~real[:, None, None, :] | torch.ones(LENGTH, LENGTH).triu(1).bool()
    hidden = hidden & ~torch.eye(LENGTH).bool()  # padding sees itself, to stay finite
    # Slope × position of the key among the real tokens, at most 35 here and in fp32.
    bias = build_alibi_tensor(real.long(), heads, torch.float32).view(BATCH, heads, 1, LENGTH)
    scores = q @ k.transpose(2, 3) / HEAD_DIM**0.5 + bias.double()
    theirs = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    mask = FutureMask(LinearBias(heads), LENGTH, LENGTH, ~real if left_padding else None)
    ours, _ = attend(q, k, v, mask)
    seen = real[:, None, :, None]
    torch.testing.assert_close(ours * seen, theirs * seen, rtol=0, atol=1e-5)
    assert_same_gradients(ours * seen, theirs * seen, (q, k, v))


@pytest.mark.parametrize(
    "scale,keys,ratio",
    [
        *(("none", 128, 1.0), ("dynamic", 16, 1.0), ("dynamic", 32, 1.0), ("dynamic", 80, 2.5)),
        *(("4", 16, 4.0), ("0.5", 128, 0.5)),
    ],
)
def test_interpolation_divides_the_slopes(scale, keys, ratio):
    config = PositionConfig(64, 8, 2, TRAIN_LENGTH, alibi_scale=scale)
    bias = build_position_method("alibi", config).bias(0, keys).at(torch.arange(keys))
    expected = -(alibi_slopes(8).double() / ratio)[:, None] * torch.arange(keys)
    torch.testing.assert_close(bias.double(), expected, rtol=1e-6, atol=0)


@torch.no_grad()
def test_interpolation_reaches_the_model():
    tokens = random_tokens(1, 4 * TRAIN_LENGTH)
    models = [small_model("alibi", "--alibi-scale", scale) for scale in ("none", "4", "dynamic")]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    plain, factor, dynamic = (model(tokens)[0] for model in models)
    assert torch.equal(factor, dynamic)
    assert (plain - factor).abs().max() > 1e-3
