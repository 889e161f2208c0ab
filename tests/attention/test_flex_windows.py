"""FlexAttention with a window per head, as skipping uses it on a GPU; the forward pass on the CPU."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call

from alibi_fairseq.attention import attend, flex
from alibi_fairseq.attention.certificate import certify


@pytest.fixture(autouse=True)
def compiled_anew():
    """On the CPU, torch 2.13 writes C++ that does not compile once it has seen several batch sizes."""
    flex._compiled.cache_clear()
    torch.compiler.reset()


def visible(call: Call, windows: torch.Tensor) -> torch.Tensor:
    """(H, T, S): blocks of keys that some query of a block of queries needs, causal within them."""
    keys = torch.arange(call.length + call.cached)
    queries = keys[call.cached :]
    first = (torch.arange(call.length) // flex.BLOCK) * flex.BLOCK + call.cached  # of the block
    nearest = (first - windows[:, None].long()).clamp(min=0)  # (H, T)
    begin = nearest // flex.BLOCK * flex.BLOCK
    return (keys >= begin[..., None]) & (keys <= queries[:, None])


@pytest.mark.parametrize(
    "cached", [70, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 130))]
)
@torch.no_grad()
def test_windows_skip_whole_blocks_and_no_others(cached):
    """Small slopes, so that a block too few or too many would be seen."""
    call = Call(heads=4, length=700, cached=cached, batch=1)
    q, k, v, _ = call.tensors()
    windows = torch.tensor([0.0, 127, 128, 300])
    scores = q.double() @ k.double().mT * call.width**-0.5
    scores = scores + call.bias().block(q, k, cached)
    scores = scores.masked_fill(~visible(call, windows), -torch.inf)
    found = flex.attend(q, k, v, call.mask(), 0.0, windows=windows)
    torch.testing.assert_close(found.double(), scores.softmax(-1) @ v.double(), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cached", [0, 70])
@torch.no_grad()
def test_certified_windows_change_nothing(cached):
    call = Call(length=900, cached=cached, batch=1)
    q, k, v, _ = call.tensors()
    windows = certify(q, k, call.bias().slopes(q.device)).windows
    assert windows.min() < 200
    found = flex.attend(q, k, v, call.mask(), 0.0, windows=windows)
    expected, _ = attend(q, k, v, call.mask(), backend="eager")
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)


@pytest.mark.slow
@torch.no_grad()
def test_lengths_and_windows_do_not_recompile():
    import torch._dynamo.utils as dynamo

    torch._dynamo.reset()
    dynamo.counters.clear()
    for length in (256, 300, 384, 515, 640):
        call = Call(length=length, batch=1)
        q, k, v, _ = call.tensors()
        for windows in (torch.full((8,), 50.0), torch.full((8,), float(length))):
            flex.attend(q, k, v, call.mask(), 0.0, windows=windows)
    assert dynamo.counters["stats"]["unique_graphs"] <= 2
