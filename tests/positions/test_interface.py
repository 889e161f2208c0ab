"""What the decoder expects of every position method, and the method of the guide."""

from __future__ import annotations

import dataclasses
import re
import sys

import pytest
import torch
from commands import ROOT
from conftest import random_tokens, small_model
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.positions import (
    METHODS,
    GateBias,
    PositionConfig,
    PositionMethod,
    build_position_method,
    register_position_method,
)

HEADS, HEAD_DIM = 2, 8
WIDTH = HEADS * HEAD_DIM
FARTHEST = 3000
ABSOLUTE = {name for name, method in METHODS.items() if method.embed is not PositionMethod.embed}


def attention_weights(method, x, start: int, layer: int):
    """Weights of a text that starts at a position, with all the method does to them; (H, T, T)."""
    length = x.shape[0]
    positions = torch.arange(start, start + length)[None]
    added = method.embed(positions)
    if added is not None:
        x = x + added[0]
    q, k = (part.view(1, length, HEADS, HEAD_DIM).transpose(1, 2) for part in (x, x.flip(1)))
    rotate = method.rotation(start, length, x.device)
    if rotate is not None:
        q, k = rotate(q, k)
    scores = q @ k.transpose(2, 3) * HEAD_DIM**-0.5
    bias = method.bias(layer, start + length)
    gates = method.gate(layer, torch.cat([torch.randn(start, 1, WIDTH), x[:, None]]))
    if gates is not None:
        bias = GateBias(gates.double().cumsum(2))
    if bias is not None:
        before = torch.zeros(1, HEADS, start, HEAD_DIM)
        scores = scores + bias.block(q, torch.cat([before, k], dim=2), start)[..., start:]
    return scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf).softmax(-1)[0]


def largest_difference(name: str, start: int, length: int, seed: int, layer: int) -> float:
    """Of the weights of a text here and elsewhere."""
    torch.manual_seed(seed)
    config = PositionConfig(WIDTH, HEADS, num_layers=4, train_length=FARTHEST + 24)
    method = build_position_method(name, config)
    if name != "fire":  # its threshold is a quarter of the training length before it learns
        for parameter in method.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(length, WIDTH)
    here, there = (attention_weights(method, x, at, layer) for at in (0, start))
    return (here - there).abs().max().item()


@pytest.mark.parametrize("name", sorted(set(METHODS) - ABSOLUTE - {"fire"}))
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    start=st.integers(1, FARTHEST),
    length=st.integers(2, 24),
    seed=st.integers(0, 2**31),
    layer=st.integers(1, 3),
)
@torch.no_grad()
def test_relative_methods_see_distances_only(name, start, length, seed, layer):
    assert largest_difference(name, start, length, seed, layer) < 2e-3


@torch.no_grad()
def test_others_see_places():
    for name in ABSOLUTE:
        assert largest_difference(name, 17, 20, seed=1, layer=0) > 0.05
    assert largest_difference("fire", 700, 20, seed=1, layer=0) < 1e-4
    assert largest_difference("fire", FARTHEST, 20, seed=1, layer=0) > 1e-4


@pytest.mark.parametrize(
    "name, options", [*((name, {}) for name in METHODS), ("alibi", {"alibi_slopes": "trainable"})]
)
def test_equal_biases_are_one_bias(name, options):
    """Layers with equal biases share one mask. Comparing them must compare no tensors: from Python
    3.13 on, dataclasses compare fields without looking first whether they are one object.
    """
    first, second = (
        build_position_method(name, PositionConfig(64, 8, 2, 16, **options)) for _ in range(2)
    )
    bias = first.bias(0, 16)
    if bias is None or type(bias).__eq__ is object.__eq__:
        return
    assert hash(bias) == hash(first.bias(0, 16)) and bias == first.bias(0, 16)
    assert (bias == first.bias(1, 16)) == (name not in ("fire", "cope", "bam"))
    assert (bias == second.bias(0, 16)) != bias.needs_grad
    values = [getattr(bias, field.name) for field in dataclasses.fields(bias) if field.compare]
    assert not any(isinstance(value, torch.Tensor) for value in values)


@torch.no_grad()
def test_the_guides_method_decodes_with_a_cache(tmp_path, monkeypatch):
    """The guide's code as a package outside of this one; its commands run in test_documented_commands."""
    guide = (ROOT / "docs" / "adding-a-position-method.md").read_text(encoding="utf-8")
    (tmp_path / "my_plugin").mkdir()
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1]
    (tmp_path / "my_plugin" / "__init__.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(METHODS, "root", None)  # removed again after the test
    del METHODS["root"]
    import my_plugin

    monkeypatch.delitem(sys.modules, "my_plugin")
    register_position_method("root", my_plugin.Root)  # the same again is no harm
    with pytest.raises(ValueError, match="'alibi' is registered already"):
        register_position_method("alibi", my_plugin.Root)
    model, tokens, state = small_model("root"), random_tokens(2, 40), {}
    ends = (1, 2, 17, 30, 40)
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    torch.testing.assert_close(torch.cat(chunks, 1), model(tokens)[0], rtol=0, atol=1e-5)
    other = small_model("none")
    other.load_state_dict(model.state_dict())
    assert (other(tokens)[0] - model(tokens)[0]).abs().max() > 1e-3
