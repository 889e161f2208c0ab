"""Where a text stands must not matter to a relative method, and does to an absolute one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alibi_fairseq.positions import (
    METHODS,
    GateBias,
    PositionConfig,
    PositionMethod,
    build_position_method,
)

HEADS, HEAD_DIM = 2, 8
WIDTH = HEADS * HEAD_DIM
FARTHEST = 3000
ABSOLUTE = {name for name, method in METHODS.items() if method.embed is not PositionMethod.embed}

texts = st.tuples(
    st.integers(1, FARTHEST), st.integers(2, 24), st.integers(0, 2**31), st.integers(1, 3)
)


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
    torch.manual_seed(seed)
    config = PositionConfig(WIDTH, HEADS, num_layers=4, train_length=FARTHEST + 24)
    method = build_position_method(name, config)
    for parameter in method.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(length, WIDTH)
    here, there = (attention_weights(method, x, at, layer) for at in (0, start))
    return (here - there).abs().max().item()


@pytest.mark.parametrize("name", sorted(set(METHODS) - ABSOLUTE - {"fire"}))
@settings(max_examples=25, deadline=None, derandomize=True)
@given(text=texts)
@torch.no_grad()
def test_relative_methods_see_distances_only(name, text):
    assert largest_difference(name, *text) < 2e-3


@pytest.mark.parametrize("name", sorted(ABSOLUTE))
@torch.no_grad()
def test_absolute_methods_see_places(name):
    assert largest_difference(name, 17, 20, seed=1, layer=0) > 0.05


@pytest.mark.parametrize("start, moves", [(700, False), (3000, True)])
@torch.no_grad()
def test_fire_sees_distances_only_up_to_its_threshold(start, moves):
    """A quarter of the training length, 756 tokens, before it learns."""
    torch.manual_seed(1)
    method = build_position_method("fire", PositionConfig(WIDTH, HEADS, 4, FARTHEST + 24))
    x = torch.randn(20, WIDTH)
    here, there = (attention_weights(method, x, at, 0) for at in (0, start))
    assert ((here - there).abs().max() > 1e-4) == moves
