"""Rotary and its scalings against Hugging Face's GPT-NeoX, transformers' frequencies and complex numbers."""

from __future__ import annotations

import pytest
import torch
from attention_calls import assert_same_gradients
from conftest import random_tokens, small_model
from transformers import GPTNeoXConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import (
    GPTNeoXRotaryEmbedding,
    apply_rotary_pos_emb,
)

from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.rotary import parse_scaling

CPU = torch.device("cpu")
LENGTH, HEAD_DIM = 32, 16
THEIR_NAMES = {"none": "default", "pi": "linear", "ntk": "dynamic", "yarn": "yarn"}


def rotary(heads: int = 1, **options):
    config = PositionConfig(heads * HEAD_DIM, heads, 2, LENGTH, **options)
    return build_position_method("rotary", config)


def theirs(kind: str, factor: float, length: int, head_dim: int, heads: int = 2) -> GPTNeoXConfig:
    """Their NTK is dynamic alone: with a factor of 1 the base grows by the ratio of the lengths."""
    parameters = {"rope_type": THEIR_NAMES[kind], "rope_theta": 10000, "partial_rotary_factor": 1.0}
    parameters["factor"] = 1.0 if kind == "ntk" else factor
    if kind == "yarn":
        parameters["original_max_position_embeddings"] = length
    return GPTNeoXConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        max_position_embeddings=length,
        rope_parameters=parameters,
    )


@pytest.mark.parametrize("start", [0, 1, 1000])
@pytest.mark.parametrize("heads", [1, 12])
@pytest.mark.parametrize("option", ["none", "pi:4", "ntk:dynamic", "yarn:4"])
def test_values_and_gradients_equal_gpt_neox(option, heads, start):
    kind = option.partition(":")[0]
    tokens = 4 * LENGTH
    if kind == "ntk" and start:
        pytest.skip("theirs goes by the length of the text")
    q, k = torch.randn(2, 2, heads, tokens, HEAD_DIM).requires_grad_()
    embedding = GPTNeoXRotaryEmbedding(theirs(kind, 4.0, LENGTH, HEAD_DIM, heads))
    positions = torch.arange(start, start + tokens)[None]
    expected = apply_rotary_pos_emb(q, k, *embedding(q, positions))
    found = rotary(heads, rotary_scaling=option).rotation(start, tokens, CPU)(q, k)
    for ours_x, theirs_x, x in zip(found, expected, (q, k)):
        torch.testing.assert_close(ours_x, theirs_x)
        assert_same_gradients(ours_x, theirs_x, [x])


def test_angles_keep_their_precision_in_bf16():
    # In bf16 positions past 256 are no longer integers; only the result may be rounded.
    q = torch.randn(1, 1, 1, HEAD_DIM)
    at = [rotary().rotation(16383, 1, CPU)(x, x)[0] for x in (q, q.bfloat16())]
    assert at[1].dtype == torch.bfloat16
    torch.testing.assert_close(at[1].float(), at[0], rtol=0.02, atol=0.02)


@pytest.mark.parametrize("length", [16, 64, 512, 3072])
@pytest.mark.parametrize("kind", ["pi", "ntk", "yarn"])
def test_scaled_frequencies_equal_transformers(kind, length):
    for head_dim in (4, 16, 64, 128):
        for factor in (1.0, 1.5, 4.0, 16.0):
            config, keys = theirs(kind, factor, length, head_dim), int(factor * length)
            make = ROPE_INIT_FUNCTIONS[THEIR_NAMES[kind]]
            expected, size = make(config, CPU, seq_len=keys)
            for given, at in ((factor, 7), ("dynamic", keys)):
                found, ours_size = parse_scaling(f"{kind}:{given}", length).at(at, head_dim, CPU)
                torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
                assert ours_size == pytest.approx(size, rel=1e-6)


@torch.no_grad()
def test_dynamic_changes_nothing_up_to_the_training_length_and_is_the_ratio_past_it():
    flags = [(), *(("--rotary-scaling", f"yarn:{factor}") for factor in ("dynamic", "4"))]
    plain, dynamic, fixed = (small_model("rotary", *more) for more in flags)
    for model in (dynamic, fixed):
        model.load_state_dict(plain.state_dict())
    short, long = random_tokens(1, 32), random_tokens(1, 128)
    assert torch.equal(dynamic(short)[0], plain(short)[0])
    assert torch.equal(dynamic(long)[0], fixed(long)[0])
    assert (fixed(long)[0] - plain(long)[0]).abs().max() > 1e-3


def test_a_continued_model_keeps_the_length_it_was_trained_at():
    at_first = parse_scaling("yarn:4", 512).at(100, 64, CPU)
    continued = parse_scaling("yarn:4:512", 2048).at(100, 64, CPU)
    assert torch.equal(at_first[0], continued[0]) and at_first[1] == continued[1]
    assert not torch.equal(at_first[0], parse_scaling("yarn:4", 2048).at(100, 64, CPU)[0])
