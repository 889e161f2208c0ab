"""FlexAttention with a window per head, as skipping uses it on a GPU; the forward pass on the CPU."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call

from alibi_fairseq.attention import attend, flex
from alibi_fairseq.attention.skipping import certify


def visible(call: Call, windows: torch.Tensor) -> torch.Tensor:
    """(H, T, S): blocks of keys that some query of a block of queries needs, causal within them."""
    keys = torch.arange(call.length + call.cached)
    queries = keys[call.cached :]
    first = (torch.arange(call.length) // flex.BLOCK) * flex.BLOCK + call.cached  # of the block
    nearest = (first - windows[:, None].long()).clamp(min=0)  # (H, T)
    begin = nearest // flex.BLOCK * flex.BLOCK
    return (keys >= begin[..., None]) & (keys <= queries[:, None])


@pytest.mark.parametrize("cached", [0, 126, 127])
def test_blocks_are_those_that_some_query_needs(cached):
    call = Call(length=700, cached=cached, heads=4)
    windows = torch.tensor([0.0, 127, 128, 300])
    found = flex.causal_blocks(call.mask(), torch.device("cpu"), windows[None])
    shown = visible(call, windows)  # (H, T, S)

    def tiles(beyond: bool) -> torch.Tensor:
        """(H, R, C, block of queries, block of keys); no key is visible past the end."""
        rows, columns = (-(-n // flex.BLOCK) for n in shown.shape[1:])
        whole = torch.full((4, rows * flex.BLOCK, columns * flex.BLOCK), beyond)
        whole[..., shown.shape[2] :] = False
        whole[:, :700, : shown.shape[2]] = shown
        return whole.view(4, rows, flex.BLOCK, columns, flex.BLOCK).transpose(2, 3)

    assert torch.equal(found.to_dense()[0].bool(), tiles(False).any(-1).any(-1))
    # Those without a masked key, which the kernel does not look at again.
    assert torch.equal(found.full_kv_num_blocks[0].long(), tiles(True).all(-1).all(-1).sum(-1))


@pytest.mark.slow  # the C++ compiler takes most of the time
@pytest.mark.parametrize("cached", [0, 70, 130])
@torch.no_grad()
def test_windows_skip_whole_blocks_and_no_others(cached):
    """Small slopes, so that a block too few or too many would be seen."""
    call = Call(heads=4, length=700, cached=cached, batch=1)
    q, k, v, _ = call.tensors()
    windows = torch.tensor([0.0, 127, 128, 300])
    scores = q.double() @ k.double().mT * call.width**-0.5
    scores = scores + call.bias().block(q, k, cached)
    scores = scores.masked_fill(~visible(call, windows), -torch.inf)
    found = flex.attend(q, k, v, call.mask(), 0.0, windows=windows[None])
    torch.testing.assert_close(found.double(), scores.softmax(-1) @ v.double(), rtol=0, atol=1e-5)


@pytest.mark.slow  # the C++ compiler takes most of the time
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


@pytest.mark.slow  # the C++ compiler takes most of the time
@torch.no_grad()
def test_lengths_batches_and_windows_do_not_recompile():
    """One graph for a single sequence and one for several; windows differ between sequences."""
    import torch._dynamo.utils as dynamo

    torch._dynamo.reset()
    dynamo.counters.clear()
    for batch, length in ((1, 256), (1, 300), (1, 515), (2, 384), (3, 300), (5, 640)):
        call = Call(length=length, batch=batch)
        q, k, v, _ = call.tensors()
        q[-1] *= 8  # which widens the windows of one sequence
        certified = certify(q, k, call.bias().slopes(q.device)).windows
        assert batch == 1 or (certified[0] < certified[-1]).any()
        expected, _ = attend(q, k, v, call.mask(), backend="eager")
        for windows in (certified, torch.full((batch, 8), float(length))):
            found = flex.attend(q, k, v, call.mask(), 0.0, windows=windows)
            torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)
    assert dynamo.counters["stats"]["unique_graphs"] <= 2


def test_heads_and_their_size_are_constants_of_the_kernel(monkeypatch):
    """Lengths and batches are not, or each would be compiled anew."""
    marked = []
    monkeypatch.setattr(torch._dynamo, "mark_static", lambda x, dim: marked.append((id(x), dim)))
    monkeypatch.setattr(flex, "compiled", lambda: lambda q, k, v, **_: q)
    q, k, v, _ = Call().tensors()
    assert flex.flex_kernel(q, k, v, None, None) is q
    assert marked == [(id(x), dim) for x in (q, k, v) for dim in (1, 3)]
