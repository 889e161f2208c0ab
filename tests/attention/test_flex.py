"""FlexAttention: visited blocks, values on the CPU, and number of compilations.

The GPU kernel is tested in tests/gpu.
"""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.utils as dynamo
from attention_calls import Call, all_at_once, reference
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import pad

from alibi_fairseq.attention import FutureMask, attend, flex
from alibi_fairseq.attention.skipping import certify

#: Lengths of windows at, near, and away from block boundaries.
WINDOWS = torch.tensor([0.0, 127, 128, 300])


def visible(call: Call, windows: torch.Tensor | None) -> torch.Tensor:
    """Return visible keys, (B or 1, H or 1, T, S), including whole blocks within the windows."""
    keys = torch.arange(call.keys)
    queries = keys[call.cached :, None]
    is_visible = (keys <= queries) & (queries - keys < (call.window or call.keys))
    if call.documents:
        is_visible = is_visible & (keys >= call.starts()[:, None, call.cached :, None])
    if windows is not None:
        first = (torch.arange(call.length) // flex.BLOCK) * flex.BLOCK + call.cached  # of the block
        nearest = (first - windows[..., None].long()).clamp(min=0)  # (H, T)
        is_visible = is_visible & (keys >= (nearest // flex.BLOCK * flex.BLOCK)[..., None])
    return is_visible.expand(*[1] * (4 - is_visible.dim()), *is_visible.shape)


CALLS = [
    (Call(heads=4, length=700, cached=cached, documents=documents, window=window), windows)
    for cached in (0, 70, 126, 127)
    for documents, window, windows in [
        (True, 0, None),
        (True, 150, None),
        (False, 150, None),
        (False, 0, WINDOWS),
    ]
]


@pytest.mark.parametrize(("call", "windows"), CALLS, ids=str)
def test_visited_blocks_have_visible_keys(call, windows):
    is_visible = visible(call, windows)
    per_head = None if windows is None else windows[None]
    blocks = flex.causal_blocks(call.mask(), torch.device("cpu"), per_head)

    def tiles(beyond: bool) -> torch.Tensor:
        """Return (B, H, R, C, block of queries, block of keys); no key past the end is visible."""
        whole = pad(is_visible, (0, 0, 0, -call.length % flex.BLOCK), value=beyond)
        whole = pad(whole, (0, -call.keys % flex.BLOCK))
        whole = whole.unflatten(3, (-1, flex.BLOCK)).unflatten(2, (-1, flex.BLOCK))
        return whole.transpose(3, 4)

    assert torch.equal(blocks.to_dense().bool(), tiles(False).any(-1).any(-1))
    if windows is not None:
        # Full blocks have no masked key, so the kernel applies no mask to them.
        assert torch.equal(blocks.full_kv_num_blocks.long(), tiles(True).all(-1).all(-1).sum(-1))


def compare(call: Call, windows: torch.Tensor | None = None) -> None:
    q, k, v, _ = call.tensors()
    output = flex.attend(q, k, v, call.mask(), 0.0, windows=windows)
    expected = reference(call)[0]
    assert (output.double() - expected).abs().max() < 5e-6 * expected.abs().max()


def certified(call: Call) -> torch.Tensor:
    q, k, _, _ = call.tensors()
    return certify(q, k, call.bias().slopes(q.device)).windows


@pytest.mark.parametrize(
    "call",
    [
        Call("none", cached=70),
        Call("sandwich", cached=70),
        Call(documents=True),
        Call(documents=True, cached=70, window=150),
        Call("none", documents=True, heads=2),
    ],
    ids=str,
)
@torch.no_grad()
def test_values_match_reference(call, monkeypatch):
    """Run flex_attention uncompiled; it takes the same arguments in the same order."""
    monkeypatch.setattr(flex, "flex_kernel", flex_attention)
    compare(call)


@pytest.mark.slow  # the C++ compiler takes most of the time
@pytest.mark.parametrize("cached", [0, 70, 130])
@torch.no_grad()
def test_windows_skip_only_hidden_blocks(cached):
    """Use small slopes, so that one block too few or too many changes the output."""
    call = Call(heads=4, length=700, cached=cached, batch=1, width=32)
    q, k, v, _ = call.tensors()
    mask = call.mask()
    scores = q.double() @ k.double().mT * call.width**-0.5
    scores = scores + all_at_once(call.bias(), q, k, cached)
    weights = scores.masked_fill(~visible(call, WINDOWS), -torch.inf).softmax(-1)
    output = flex.attend(q, k, v, mask, 0.0, windows=WINDOWS[None])
    torch.testing.assert_close(output.double(), weights @ v.double(), rtol=0, atol=1e-5)


PLAIN = [Call(length=n, batch=1, width=32) for n in (128, 200, 333, 640)]
PLAIN.append(Call(length=1, cached=40, batch=1, width=32))
PLAIN += [Call(length=130, cached=cached, batch=1, width=32) for cached in (7, 100, 300)]
SKIPPING = [
    Call(length=n, batch=b, width=32) for b, n in ((1, 515), (1, 900), (2, 384), (3, 300), (5, 640))
]


@pytest.mark.slow  # the C++ compiler takes most of the time
@pytest.mark.parametrize(("calls", "graphs"), [(PLAIN, 3), (SKIPPING, 2)])
@torch.no_grad()
def test_lengths_batches_and_windows_do_not_recompile(calls, graphs):
    """Allow three graphs: as many keys as queries, more keys, and a single query.

    With windows, allow one graph for a single sequence and one for several.
    """
    torch._dynamo.reset()
    dynamo.counters.clear()
    assert certified(SKIPPING[1]).min() < 200
    for call in calls:
        if calls is PLAIN:
            compare(call)
        else:
            for windows in (certified(call), torch.full((call.batch, 8), float(call.length))):
                compare(call, windows)
    assert dynamo.counters["stats"]["unique_graphs"] <= graphs


@pytest.mark.slow  # the C++ compiler takes most of the time
@pytest.mark.parametrize("head_dim", [24, 32])
@torch.no_grad()
def test_supported_head_sizes_ignore_memory_past_the_keys(head_dim):
    """Queries and memory past the keys are large, so that a product of them changes the output."""
    for keys in (20, 24, 120, 136):
        q, k, v, _ = Call(batch=1, heads=2, length=keys, width=head_dim).tensors()
        q.abs_()
        buffer = torch.full((1, 3, keys, head_dim), 1e4)
        buffer[:, :2] = k
        k = buffer[:, :2]
        mask = FutureMask(None, keys, keys)
        assert flex.unsupported_reason(q, k, v, mask, 0.0) is None
        expected, _ = attend(q, k, v, mask, backend="eager")
        torch.testing.assert_close(flex.attend(q, k, v, mask, 0.0), expected, rtol=0, atol=1e-5)
