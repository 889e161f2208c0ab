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


def test_slopes_of_8_heads_match_paper():
    assert alibi_slopes(8).tolist() == [2.0**-n for n in range(1, 9)]


@pytest.mark.parametrize("bias_max", [4, 8, 16])
def test_slopes_match_mpt(bias_max):
    for heads in range(1, 129):
        bias = build_mpt_alibi_tensor(heads, 2, alibi_bias_max=bias_max)  # (H, 1, 2)
        at_distance_1 = bias.view(heads, 2)[:, 0]
        torch.testing.assert_close(alibi_slopes(heads, bias_max), -at_distance_1)


def test_slopes_match_bloom():
    for heads in range(1, 129):
        bias = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)  # (H, 1, 2)
        at_key_1 = bias[:, 0, 1]  # BLOOM adds slope · key
        torch.testing.assert_close(alibi_slopes(heads), at_key_1)


@pytest.mark.parametrize("bias_max", [4, 8, 16])
def test_option_sets_slopes_of_the_bias(bias_max):
    for heads in range(1, 129):
        config = PositionConfig(heads, heads, 1, 16)
        bias = build_position_method("alibi", config, alibi_bias_max=bias_max).bias(0, 16)
        torch.testing.assert_close(bias.slopes(CPU), alibi_slopes(heads, bias_max))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_bias_is_precise_near_query_in_half_precision(dtype):
    # In the authors' form, slope · key, a query at position 16,383 cannot distinguish neighboring
    # keys: the values are multiples of 4 in fp16 and of 32 in bf16. In the relative form it can.
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
    is_future = torch.ones(LENGTH, LENGTH).triu(1).bool()
    is_itself = torch.eye(LENGTH).bool()
    # Padding attends to itself, so that its scores are finite.
    hidden = (~real[:, None, None, :] | is_future) & ~is_itself
    # Slope · position of the key among the real tokens, at most 35 here and in fp32.
    bias = build_alibi_tensor(real.long(), heads, torch.float32).view(BATCH, heads, 1, LENGTH)
    scores = q @ k.transpose(2, 3) / HEAD_DIM**0.5 + bias.double()
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    padding = ~real if left_padding else None
    output, _ = attend(q, k, v, FutureMask(LinearBias(heads), LENGTH, LENGTH, padding))
    is_real_query = real[:, None, :, None]
    output = output * is_real_query
    expected = expected * is_real_query
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
    assert_same_gradients(output, expected, (q, k, v))


@pytest.mark.parametrize(
    ("scale", "keys", "ratio"),
    [
        ("none", 128, 1.0),
        ("dynamic", 16, 1.0),
        ("dynamic", 32, 1.0),
        ("dynamic", 80, 2.5),
        ("4", 16, 4.0),
        ("0.5", 128, 0.5),
    ],
)
def test_interpolation_divides_the_slopes(scale, keys, ratio):
    config = PositionConfig(64, 8, 2, TRAIN_LENGTH)
    distance = torch.arange(keys)
    bias = build_position_method("alibi", config, alibi_scale=scale).bias(0, keys).at(distance)
    slopes = alibi_slopes(8).double() / ratio
    expected = -slopes[:, None] * distance
    torch.testing.assert_close(bias.double(), expected, rtol=1e-6, atol=0)


@torch.no_grad()
def test_interpolation_reaches_the_model():
    plain = small_model("alibi")
    scaled = small_model("alibi", "--alibi-scale", "4")
    dynamic = small_model("alibi", "--alibi-scale", "dynamic")
    scaled.load_state_dict(plain.state_dict())
    dynamic.load_state_dict(plain.state_dict())
    tokens = random_tokens(1, 4 * TRAIN_LENGTH)
    assert torch.equal(scaled(tokens)[0], dynamic(tokens)[0])
    assert (plain(tokens)[0] - scaled(tokens)[0]).abs().max() > 1e-3
