"""Rotary embeddings compared with transformers and with products of complex numbers."""

from __future__ import annotations

import itertools

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
from alibi_fairseq.positions.options import with_length

CPU = torch.device("cpu")
LENGTH = 32
HEAD_DIM = 16
#: Rope types of transformers for scalings with another name.
ROPE_TYPES = {"none": "linear", "pi": "linear", "ntk": "dynamic"}


def rotary(heads: int = 1, head_dim: int = HEAD_DIM, length: int = LENGTH, **options):
    config = PositionConfig(heads * head_dim, heads, 2, length)
    return build_position_method("rotary", config, **options)


def factors(pairs: int) -> dict[str, list[float]]:
    """Return the lists of longrope by key of ``rope_parameters``."""
    short = [1 + pair / 10 for pair in range(pairs)]
    return {"short_factor": short, "long_factor": [2 * factor for factor in short]}


def longrope_options(pairs: int) -> dict[str, str]:
    """Return the same lists as model options."""
    lists = factors(pairs)
    return {
        "longrope_short_factors": ",".join(map(str, lists["short_factor"])),
        "longrope_long_factors": ",".join(map(str, lists["long_factor"])),
    }


def transformers_config(
    kind: str,
    factor: float = 1.0,
    length: int = LENGTH,
    head_dim: int = HEAD_DIM,
    heads: int = 2,
    base: float = 10000.0,
    percent: float = 1.0,
    **extra_parameters,
) -> GPTNeoXConfig:
    """Return the configuration of a scaling in transformers.

    NTK is always dynamic there. With a factor of 1 the base grows by the ratio of the lengths.
    """
    parameters = {
        "rope_type": ROPE_TYPES.get(kind, kind),
        "rope_theta": base,
        "partial_rotary_factor": percent,
        "factor": 1.0 if kind == "ntk" else factor,
    }
    parameters.update(extra_parameters)
    if kind in ("yarn", "llama3", "longrope"):
        parameters["original_max_position_embeddings"] = length
    if kind == "llama3":
        parameters.setdefault("low_freq_factor", 1.0)
        parameters.setdefault("high_freq_factor", 4.0)
    if kind == "longrope":
        parameters.update(factors(int(head_dim * percent) // 2))
    return GPTNeoXConfig(
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        max_position_embeddings=length,
        rope_parameters=parameters,
    )


def expected_frequencies(config: GPTNeoXConfig, keys: int) -> tuple[torch.Tensor, float]:
    make = ROPE_INIT_FUNCTIONS[config.rope_parameters["rope_type"]]
    return make(config, CPU, seq_len=keys)


#: Scalings and first positions. transformers' NTK base depends on the length of the text, not on
#: the positions, so both are equal only from position 0.
OPTIONS_AND_STARTS = [("ntk:dynamic", 0)]
for option in ("none", "pi:4", "yarn:4", "llama3:4", "longrope:4"):
    OPTIONS_AND_STARTS += [(option, start) for start in (0, 1, 1000)]


@pytest.mark.parametrize("heads", [1, 12])
@pytest.mark.parametrize("percent", [1.0, 0.25])
@pytest.mark.parametrize(("option", "start"), OPTIONS_AND_STARTS)
def test_values_and_gradients_equal_gpt_neox(option, percent, heads, start):
    kind = option.partition(":")[0]
    tokens = 4 * LENGTH
    q, k = torch.randn(2, 2, heads, tokens, HEAD_DIM).requires_grad_()
    factor = 1.0 if option == "none" else 4.0
    config = transformers_config(kind, factor, heads=heads, base=500.0, percent=percent)
    positions = torch.arange(start, start + tokens)[None]
    cos, sin = GPTNeoXRotaryEmbedding(config)(q, positions)
    expected_q, expected_k = apply_rotary_pos_emb(q, k, cos, sin)

    options = {"rotary_scaling": option, "rotary_base": 500.0, "rotary_percent": percent}
    if kind == "longrope":
        options.update(longrope_options(int(HEAD_DIM * percent) // 2))
    rotated_q, rotated_k = rotary(heads, **options).rotation(start, tokens, CPU)(q, k)
    torch.testing.assert_close(rotated_q, expected_q)
    torch.testing.assert_close(rotated_k, expected_k)
    assert_same_gradients(rotated_q, expected_q, [q])
    assert_same_gradients(rotated_k, expected_k, [k])


@pytest.mark.parametrize("start", [0, 1000])
@pytest.mark.parametrize(
    ("options", "pairs", "pair_dim"),
    [
        ({}, 8, 16),
        ({"rotary_base": 500000.0}, 8, 16),
        ({"rotary_percent": 0.75}, 6, 12),
        ({"p_rope": 0.75}, 6, 16),
    ],
)
def test_values_and_gradients_equal_complex_products(options, pairs, pair_dim, start):
    """Pair (x_i, x_{i + r/2}) is a complex number times e^(i·position·frequency), in float64."""
    q = torch.randn(2, 3, 50, HEAD_DIM, dtype=torch.float64, requires_grad=True)
    base = options.get("rotary_base", 10000.0)
    half = pairs if "rotary_percent" in options else HEAD_DIM // 2
    frequencies = torch.zeros(half, dtype=torch.float64)
    for pair in range(pairs):
        frequencies[pair] = base ** (-2 * pair / pair_dim)
    angles = torch.arange(start, start + 50, dtype=torch.float64)[:, None] * frequencies
    complex_q = torch.complex(q[..., :half], q[..., half : 2 * half])
    products = complex_q * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat([products.real, products.imag, q[..., 2 * half :]], dim=-1)
    rotated, _ = rotary(3, **options).rotation(start, 50, CPU)(q, q)
    # The angles are fp32: at position 1,000 they are exact to 1,000 · 2^-24.
    torch.testing.assert_close(rotated, expected, rtol=0, atol=1e-6 * (start + 50))
    weight = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad((rotated * weight).sum(), q)
    (expected_gradient,) = torch.autograd.grad((expected * weight).sum(), q)
    torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-6 * (start + 50))


@pytest.mark.parametrize(
    ("options", "unrotated"),
    [
        ({"rotary_percent": 0.25}, [*range(4, 16)]),
        ({"p_rope": 0.5}, [4, 5, 6, 7, 12, 13, 14, 15]),
    ],
)
def test_unrotated_features_are_unchanged(options, unrotated):
    q = torch.randn(1, 2, 9, HEAD_DIM).bfloat16()
    rotated, _ = rotary(2, **options).rotation(3, 9, CPU)(q, q)
    is_unchanged = (rotated == q).all(dim=2).all(dim=1)[0]
    assert is_unchanged.nonzero().flatten().tolist() == unrotated


def test_angles_keep_precision_in_bf16():
    # In bf16, positions past 256 are no longer integers. Only the result may be rounded.
    q = torch.randn(1, 1, 1, HEAD_DIM)
    rotation = rotary().rotation(16383, 1, CPU)
    expected, _ = rotation(q, q)
    rotated, _ = rotation(q.bfloat16(), q.bfloat16())
    assert rotated.dtype == torch.bfloat16
    torch.testing.assert_close(rotated.float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("percent", [1.0, 0.5])
@pytest.mark.parametrize("length", [16, 512, 8192])
@pytest.mark.parametrize("head_dim", [8, 64, 128])
def test_frequencies_equal_transformers(head_dim, length, percent, base):
    config = transformers_config("none", 1.0, length, head_dim, base=base, percent=percent)
    expected, _ = expected_frequencies(config, length)
    method = rotary(1, head_dim, length, rotary_base=base, rotary_percent=percent)
    frequencies, scale = method.frequencies(7, CPU)
    torch.testing.assert_close(frequencies, expected, rtol=1e-6, atol=0)
    assert scale == 1.0


@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize("percent", [1.0, 0.5])
@pytest.mark.parametrize("length", [16, 512, 8192])
@pytest.mark.parametrize("head_dim", [8, 64, 128])
@pytest.mark.parametrize(
    ("kind", "dynamic"),
    [("longrope", False), *itertools.product(["pi", "ntk", "yarn", "llama3"], [False, True])],
)
def test_scaled_frequencies_equal_transformers(kind, dynamic, head_dim, length, percent, base):
    options = {"rotary_base": base, "rotary_percent": percent}
    if kind == "longrope":
        options.update(longrope_options(int(head_dim * percent) // 2))
    for factor in (1.0, 1.5, 8.0, 32.0):
        config = transformers_config(kind, factor, length, head_dim, base=base, percent=percent)
        keys = int(factor * length)
        expected, expected_scale = expected_frequencies(config, keys)
        scaling = f"{kind}:dynamic" if dynamic else f"{kind}:{factor}"
        method = rotary(1, head_dim, length, rotary_scaling=scaling, **options)
        frequencies, scale = method.frequencies(keys, CPU)
        torch.testing.assert_close(frequencies, expected, rtol=1e-6, atol=0)
        assert scale == pytest.approx(expected_scale, rel=1e-6)


@pytest.mark.parametrize("keys", [1, LENGTH, LENGTH + 1, 4 * LENGTH])
def test_longrope_selects_list_by_length(keys):
    method = rotary(rotary_scaling="longrope:4", **longrope_options(HEAD_DIM // 2))
    frequencies, scale = method.frequencies(keys, CPU)
    expected, expected_scale = expected_frequencies(transformers_config("longrope", 4.0), keys)
    torch.testing.assert_close(frequencies, expected)
    assert scale == pytest.approx(expected_scale)


@pytest.mark.parametrize("fraction", [0.25, 0.5, 0.7, 0.75])
@pytest.mark.parametrize(("scaling", "factor"), [("none", 1.0), ("pi:4", 4.0)])
@pytest.mark.parametrize("head_dim", [8, 16, 64, 128])
def test_p_rope_frequencies_equal_transformers(fraction, scaling, factor, head_dim):
    config = transformers_config("proportional", factor, head_dim=head_dim, percent=fraction)
    expected, _ = expected_frequencies(config, LENGTH)
    method = rotary(1, head_dim, p_rope=fraction, rotary_scaling=scaling)
    frequencies, _ = method.frequencies(LENGTH, CPU)
    torch.testing.assert_close(frequencies, expected)


@pytest.mark.parametrize(("few", "many"), [(1, 4), (2, 3), (0.5, 64)])
@pytest.mark.parametrize(
    ("kind", "few_key", "many_key"),
    [("yarn", "beta_slow", "beta_fast"), ("llama3", "low_freq_factor", "high_freq_factor")],
)
def test_turns_equal_transformers_parameters(kind, few_key, many_key, few, many):
    config = transformers_config(kind, 8.0, 512, 64, **{few_key: few, many_key: many})
    expected, expected_scale = expected_frequencies(config, 512)
    method = rotary(1, 64, 2048, rotary_scaling=f"{kind}:8:512:{few}:{many}")
    frequencies, scale = method.frequencies(512, CPU)
    torch.testing.assert_close(frequencies, expected, rtol=1e-6, atol=0)
    assert scale == pytest.approx(expected_scale)


FIXED_SCALINGS = ["pi:4", "ntk:4", "yarn:4", "llama3:4", "longrope:4"]
DYNAMIC_SCALINGS = ["pi:dynamic", "ntk:dynamic", "yarn:dynamic", "llama3:dynamic"]


@pytest.mark.parametrize("start", [LENGTH - 1, LENGTH, 3 * LENGTH])
@pytest.mark.parametrize("scaling", ["none", *FIXED_SCALINGS, *DYNAMIC_SCALINGS])
def test_single_rotation_equals_last_of_whole_text(scaling, start):
    lists = longrope_options(HEAD_DIM // 2) if "longrope" in scaling else {}
    method = rotary(rotary_scaling=scaling, **lists)
    q, k = torch.randn(2, 1, 1, start + 1, HEAD_DIM)
    expected_q, expected_k = method.rotation(0, start + 1, CPU)(q, k)
    rotated_q, rotated_k = method.rotation(start, 1, CPU)(q[:, :, -1:], k[:, :, -1:])
    torch.testing.assert_close(rotated_q, expected_q[:, :, -1:])
    torch.testing.assert_close(rotated_k, expected_k[:, :, -1:])


@pytest.mark.parametrize(
    ("scaling", "depends"),
    [("none", False), ("yarn:4", False), ("yarn:dynamic", True), ("longrope:4", True)],
)
def test_depends_on_key_count(scaling, depends):
    lists = longrope_options(HEAD_DIM // 2) if "longrope" in scaling else {}
    method = rotary(rotary_scaling=scaling, **lists)
    assert method.depends_on_key_count == depends
    short, _ = method.frequencies(LENGTH, CPU)
    long, _ = method.frequencies(2 * LENGTH, CPU)
    assert torch.equal(short, long) != depends


@torch.no_grad()
def test_dynamic_scaling_starts_at_training_length():
    plain = small_model("rotary")
    dynamic = small_model("rotary", "--rotary-scaling", "yarn:dynamic")
    fixed = small_model("rotary", "--rotary-scaling", "yarn:4")
    dynamic.load_state_dict(plain.state_dict())
    fixed.load_state_dict(plain.state_dict())
    short = random_tokens(1, 32)
    long = random_tokens(1, 128)
    assert torch.equal(dynamic(short)[0], plain(short)[0])
    assert torch.equal(dynamic(long)[0], fixed(long)[0])
    assert (fixed(long)[0] - plain(long)[0]).abs().max() > 1e-3


def test_continued_model_keeps_original_length():
    original, original_scale = rotary(1, 64, 512, rotary_scaling="yarn:4").frequencies(100, CPU)
    method = rotary(1, 64, 2048, rotary_scaling="yarn:4:512")
    continued, continued_scale = method.frequencies(100, CPU)
    assert torch.equal(continued, original)
    assert continued_scale == original_scale
    without_original_length, _ = rotary(1, 64, 2048, rotary_scaling="yarn:4").frequencies(100, CPU)
    assert not torch.equal(without_original_length, original)


@pytest.mark.parametrize("scaling", ["yarn:4", "llama3:8", "longrope:4"])
def test_implied_length_is_added(scaling):
    assert with_length(scaling, 32) == f"{scaling}:32"


@pytest.mark.parametrize("scaling", ["none", "pi:4", "ntk:4", "yarn:dynamic", "yarn:4:16"])
def test_length_without_effect_is_not_added(scaling):
    assert with_length(scaling, 32) == scaling
