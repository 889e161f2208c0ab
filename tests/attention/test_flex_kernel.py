"""The options of the FlexAttention kernel on a GPU, with stand-ins for what compiles them."""

from __future__ import annotations

import logging

import pytest
import torch

from alibi_fairseq.attention import flex_kernel as module
from alibi_fairseq.attention.flex_kernel import FLASH, TRITON, flash_agrees


@pytest.fixture(autouse=True)
def _nothing_tried_yet():
    module._agrees.clear()
    yield
    module._agrees.clear()


def inputs(width: int = 64):
    return [torch.randn(1, 2, 8, width, dtype=torch.bfloat16) for _ in range(3)]


def kernel(wrong: float = 0.0, fails: bool = False):
    def call(q, k, v, kernel_options):
        flash = kernel_options is FLASH
        if flash and fails:
            raise NotImplementedError("SM90 needs blocks of 256\nmore")
        return (q + k) * v * (1 + wrong * flash)

    return call


def test_flash_attention_4_is_used_where_it_agrees(caplog):
    assert flash_agrees(kernel(), *inputs())
    assert not caplog.records


@pytest.mark.parametrize("broken,says", [
    (kernel(wrong=0.2), "its values differ"), (kernel(fails=True), "SM90 needs blocks of 256"),
])  # fmt: skip
def test_it_is_left_out_with_one_line_where_it_does_not(broken, says, caplog):
    with caplog.at_level(logging.WARNING, logger="alibi_fairseq"):
        assert not any(flash_agrees(broken, *inputs()) for _ in range(2))
    (record,) = caplog.records
    assert record.getMessage() == f"flash-attn-4 is not used for FlexAttention: {says}"


def test_each_head_size_is_tried():
    assert not flash_agrees(kernel(fails=True), *inputs(64))
    assert flash_agrees(kernel(), *inputs(128))


def test_the_options_are_those_of_this_torch():
    from torch.nn.attention.flex_attention import FlexKernelOptions

    assert set(TRITON) < set(FlexKernelOptions.__annotations__)
    assert set(FLASH) < set(FlexKernelOptions.__annotations__) or not module.flash_installed()


def test_heads_and_their_size_are_constants_of_the_kernel(monkeypatch):
    """Lengths and batches are not, or each would be compiled anew."""
    marked = []
    monkeypatch.setattr(torch._dynamo, "mark_static", lambda x, dim: marked.append((x, dim)))
    monkeypatch.setattr(module, "compiled", lambda: lambda q, k, v, **_: q)
    q, k, v = inputs()
    assert module.flex_kernel(q, k, v, None, None) is q
    assert [(id(x), dim) for x, dim in marked] == [(id(x), d) for x in (q, k, v) for d in (1, 3)]
