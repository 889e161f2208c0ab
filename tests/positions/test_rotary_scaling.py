"""``--rotary-scaling`` against transformers' ``ROPE_INIT_FUNCTIONS``."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model
from transformers import GPTNeoXConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.gpt_neox.modeling_gpt_neox import (
    GPTNeoXRotaryEmbedding,
    apply_rotary_pos_emb,
)

from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.rotary import parse_scaling

CPU = torch.device("cpu")
THEIR_NAMES = {"pi": "linear", "ntk": "dynamic", "yarn": "yarn"}


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


@pytest.mark.parametrize("head_dim", [4, 16, 64, 128])
@pytest.mark.parametrize("length", [16, 64, 512, 3072])
@pytest.mark.parametrize("factor", [1.0, 1.5, 4.0, 16.0])
@pytest.mark.parametrize("kind", list(THEIR_NAMES))
def test_frequencies_equal_transformers(kind, factor, length, head_dim):
    config = theirs(kind, factor, length, head_dim)
    make = ROPE_INIT_FUNCTIONS[THEIR_NAMES[kind]]
    expected, size = make(config, CPU, seq_len=int(factor * length))
    found, ours_size = parse_scaling(f"{kind}:{factor}", length).at(7, head_dim, CPU)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    assert ours_size == pytest.approx(size, rel=1e-6)
    dynamic, dynamic_size = parse_scaling(f"{kind}:dynamic", length).at(
        int(factor * length), head_dim, CPU
    )
    torch.testing.assert_close(dynamic, expected, rtol=1e-6, atol=0)
    assert dynamic_size == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize("heads", [1, 6])
@pytest.mark.parametrize("kind", list(THEIR_NAMES))
def test_values_and_gradients_equal_gpt_neox(kind, heads):
    length, head_dim, tokens = 32, 16, 128
    option = {"pi": "pi:4", "ntk": "ntk:dynamic", "yarn": "yarn:4"}[kind]
    q, k = torch.randn(2, 2, heads, tokens, head_dim).requires_grad_()
    embedding = GPTNeoXRotaryEmbedding(theirs(kind, 4.0, length, head_dim, heads))
    expected = apply_rotary_pos_emb(q, k, *embedding(q, torch.arange(tokens)[None]))
    config = PositionConfig(heads * head_dim, heads, 2, length, rotary_scaling=option)
    found = build_position_method("rotary", config).rotation(0, tokens, CPU)(q, k)
    for ours_x, theirs_x, x in zip(found, expected, (q, k)):
        torch.testing.assert_close(ours_x, theirs_x)
        direction = torch.randn_like(x)
        torch.testing.assert_close(
            *(torch.autograd.grad(y, x, direction, retain_graph=True) for y in (ours_x, theirs_x))
        )


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


@pytest.mark.parametrize("kind", list(THEIR_NAMES))
@torch.no_grad()
def test_a_fixed_factor_decodes_like_one_pass(kind):
    model, state = small_model("rotary", "--rotary-scaling", f"{kind}:4"), {}
    tokens = random_tokens(2, 100)
    chunks = [
        model.decoder(tokens[:, :end], incremental_state=state)[0] for end in (1, 30, 31, 100)
    ]
    torch.testing.assert_close(torch.cat(chunks, 1), model(tokens)[0], rtol=0, atol=1e-5)


def test_a_continued_model_keeps_the_length_it_was_trained_at():
    at_first = parse_scaling("yarn:4", 512).at(100, 64, CPU)
    continued = parse_scaling("yarn:4:512", 2048).at(100, 64, CPU)
    assert torch.equal(at_first[0], continued[0]) and at_first[1] == continued[1]
    assert not torch.equal(at_first[0], parse_scaling("yarn:4", 2048).at(100, 64, CPU)[0])


@pytest.mark.parametrize(
    "given",
    [
        "yarn",
        "yarn:",
        "yarn:0.5",
        "pi:-2",
        "ntk:nan",
        "ntk:inf",
        "linear:4",
        "pi:4:0",
        "pi:4:x",
        "",
    ],
)
def test_anything_else_is_refused(given):
    with pytest.raises(BadInput, match="--rotary-scaling must be none"):
        parse_scaling(given, 512)


def test_other_methods_refuse_it():
    config = PositionConfig(64, 8, 2, 16, rotary_scaling="yarn:4")
    for method in ("alibi", "xpos"):
        with pytest.raises(BadInput, match="applies only to position method rotary"):
            build_position_method(method, config)
