"""Rotary against Hugging Face's GPT-NeoX and against complex numbers."""

from __future__ import annotations

import pytest
import torch
from transformers import GPTNeoXConfig
from transformers.models.gpt_neox.modeling_gpt_neox import (
    GPTNeoXRotaryEmbedding,
    apply_rotary_pos_emb,
)

from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import PositionConfig, build_position_method

BATCH, LENGTH, HEAD_DIM = 2, 40, 16


def rotary(heads: int):
    config = PositionConfig(heads * HEAD_DIM, heads, num_layers=2, train_length=16)
    return build_position_method("rotary", config)


@pytest.mark.parametrize("start", [0, 1, 1000])
@pytest.mark.parametrize("heads", [1, 12])
def test_values_and_gradients_equal_gpt_neox(heads, start):
    config = GPTNeoXConfig(
        hidden_size=heads * HEAD_DIM,
        num_attention_heads=heads,
        rope_parameters={"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 1.0},
    )
    q, k = torch.randn(2, BATCH, heads, LENGTH, HEAD_DIM).requires_grad_()
    positions = torch.arange(start, start + LENGTH)[None]
    theirs = apply_rotary_pos_emb(q, k, *GPTNeoXRotaryEmbedding(config)(q, positions))
    ours = rotary(heads).rotation(start, LENGTH, q.device)(q, k)
    for ours_x, theirs_x, x in zip(ours, theirs, (q, k)):
        torch.testing.assert_close(ours_x, theirs_x)
        direction = torch.randn_like(x)
        torch.testing.assert_close(
            torch.autograd.grad(ours_x, x, direction, retain_graph=True),
            torch.autograd.grad(theirs_x, x, direction, retain_graph=True),
        )


def test_pairs_turn_like_complex_numbers():
    q, k = torch.randn(2, 1, 1, LENGTH, HEAD_DIM, dtype=torch.float64)
    turned, _ = rotary(1).rotation(0, LENGTH, q.device)(q, k)
    half = HEAD_DIM // 2
    numbers = torch.complex(q[..., :half], q[..., half:])
    speeds = 10000.0 ** (-2 * torch.arange(half, dtype=torch.float64) / HEAD_DIM)
    angles = torch.arange(LENGTH)[:, None] * speeds
    expected = numbers * torch.polar(torch.ones_like(angles), angles)
    torch.testing.assert_close(turned[..., :half], expected.real, rtol=0, atol=1e-5)
    torch.testing.assert_close(turned[..., half:], expected.imag, rtol=0, atol=1e-5)


def test_angles_keep_their_precision_in_bf16():
    # In bf16 positions past 256 are no longer integers; only the result may be rounded.
    q = torch.randn(1, 1, 1, HEAD_DIM)
    at = [rotary(1).rotation(16383, 1, q.device)(x, x)[0] for x in (q, q.bfloat16())]
    assert at[1].dtype == torch.bfloat16
    torch.testing.assert_close(at[1].float(), at[0], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("name", ["rotary", "xpos"])
def test_an_odd_head_size_is_refused(name):
    with pytest.raises(BadInput, match="width 60 over 4 heads gives 15"):
        build_position_method(name, PositionConfig(60, 4, num_layers=2, train_length=16))
