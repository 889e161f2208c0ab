"""FlexAttention: visited blocks, values on the CPU, and number of compilations.

The GPU kernel is tested in tests/gpu.
"""

from __future__ import annotations

import functools

import pytest
import torch
import torch._dynamo.utils as dynamo
from attention_calls import Call, all_at_once, reference
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch._inductor.exc import InductorError
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from alibi_fairseq.attention import FutureMask, attend, backend_selection, flex, flex_kernel
from alibi_fairseq.attention.flex_kernel import BLOCK
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
        first = (torch.arange(call.length) // BLOCK) * BLOCK + call.cached  # of the block
        nearest = (first - windows[..., None].long()).clamp(min=0)  # (H, T)
        is_visible = is_visible & (keys >= (nearest // BLOCK * BLOCK)[..., None])
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
        whole = pad(is_visible, (0, 0, 0, -call.length % BLOCK), value=beyond)
        whole = pad(whole, (0, -call.keys % BLOCK))
        whole = whole.unflatten(3, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
        return whole.transpose(3, 4)

    assert torch.equal(blocks.to_dense().bool(), tiles(False).any(-1).any(-1))
    # Full blocks have no masked key, so the kernel applies no mask to them. If the last key of a
    # block is the first query's own, the block is not counted as full.
    if windows is not None:
        entirely_visible = tiles(True).all(-1).all(-1).sum(-1)
        spared = int(call.cached % BLOCK == BLOCK - 1)
        assert torch.equal(
            blocks.full_kv_num_blocks.long(), (entirely_visible - spared).clamp(min=0)
        )


#: Lengths at, near, and away from block boundaries.
SHAPES = [(300, 0), (384, 0), (300, 70), (256, 128), (700, 126), (700, 127), (1, 127), (1, 128)]


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("window", [0, 100, 200])
@pytest.mark.parametrize(("length", "cached"), SHAPES)
def test_kernel_options_follow_from_mask(length, cached, window, documents):
    """Check the promises of the options against the mask written out as a matrix.

    A kernel visits partial blocks before full ones.
    """
    call = Call(length=length, cached=cached, window=window, documents=documents)
    options = flex_kernel.kernel_options(call.mask(), torch.float32, has_table=False)
    blocks = flex.causal_blocks(call.mask(), torch.device("cpu"))
    is_visible = visible(call, None)[:, 0]  # (B, T, S)
    partial = blocks.kv_num_blocks.expand(len(is_visible), 1, -1)[:, 0]  # (B, R)
    first_partial = blocks.kv_indices.expand(len(is_visible), 1, -1, -1)[:, 0, :, 0]  # (B, R)
    has_unsafe_row = False
    for rows, first, count in zip(is_visible, first_partial.tolist(), partial.tolist()):
        for block, start in enumerate(range(0, length, BLOCK)):
            assert count[block] > 0
            first_key = first[block] * BLOCK
            keys = slice(first_key, first_key + BLOCK)
            queries = rows[start : start + BLOCK, keys]
            has_unsafe_row |= not bool(queries.any(-1).all())
    assert not (options["ROWS_GUARANTEED_SAFE"] and has_unsafe_row)
    is_limited = documents or call.mask().window > 0
    assert options["ROWS_GUARANTEED_SAFE"] == (not is_limited)
    assert options["BLOCKS_ARE_CONTIGUOUS"] == options["ROWS_GUARANTEED_SAFE"]
    assert options["IS_DIVISIBLE"] == (length % 128 == 0 and (length + cached) % 128 == 0)


def test_limited_masks_have_unsafe_rows():
    """Without this, the options could promise safe rows for every mask."""
    call = Call(length=384, window=100)
    blocks = flex.causal_blocks(call.mask(), torch.device("cpu"))
    first_key = int(blocks.kv_indices[0, 0, 1, 0]) * BLOCK
    rows = visible(call, None)[0, 0, 128:256, first_key : first_key + BLOCK]
    assert not rows.any(-1).all()


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
def test_values_match_reference(call, uncompiled_flex):
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
@pytest.mark.parametrize(("calls", "graphs"), [(PLAIN, 4), (SKIPPING, 2)])
@torch.no_grad()
def test_lengths_batches_and_windows_do_not_recompile(calls, graphs):
    """Allow four graphs: one block, as many keys as queries, more keys, and a single query.

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
@pytest.mark.parametrize("keys", [20, 24, 120, 136])
@torch.no_grad()
def test_supported_head_sizes_ignore_memory_past_the_keys(head_dim, keys):
    """Queries and memory past the keys are large, so that a product of them changes the output."""
    q, k, v, _ = Call(batch=1, heads=2, length=keys, width=head_dim).tensors()
    q.abs_()
    buffer = torch.full((1, 3, keys, head_dim), 1e4)
    buffer[:, :2] = k
    k = buffer[:, :2]
    mask = FutureMask(None, keys, keys)
    assert flex.unsupported_reason(q, k, v, mask, 0.0) is None
    expected, _ = attend(q, k, v, mask, backend="eager")
    torch.testing.assert_close(flex.attend(q, k, v, mask, 0.0), expected, rtol=0, atol=1e-5)


def test_failed_compilation_selects_another_backend(monkeypatch, caplog):
    def fail(*call):
        raise InductorError(RuntimeError("No valid triton configs."), None)

    monkeypatch.setattr(flex, "flex_kernel", fail)
    monkeypatch.setattr(flex, "_compile_failures", {})
    call = Call(length=200)
    q, k, v, _ = call.tensors()
    for _ in range(2):
        reason = flex.compile_failure(q, k, v, call.mask(), trained=True)
        assert reason is not None
        assert "No valid triton configs" in reason
    assert len(caplog.records) == 1

    monkeypatch.setattr(flex, "unsupported_reason", lambda q, k, v, mask, dropout_p: reason)
    monkeypatch.setattr(backend_selection, "_preferences", lambda *call: ("flex", "fold"))
    assert backend_selection.choose_backend("auto", q, k, v, call.mask(), 0.0) == "fold"


def test_compiled_kind_is_computed_once(monkeypatch):
    computed = []

    def kernel(q, k, v, score_mod, blocks, options):
        computed.append(q.requires_grad)
        return q * k * v

    monkeypatch.setattr(flex, "flex_kernel", kernel)
    monkeypatch.setattr(flex, "_compile_failures", {})
    for length in (200, 300, 256):
        call = Call(length=length)
        q, k, v, _ = call.tensors()
        assert flex.compile_failure(q, k, v, call.mask(), trained=True) is None
    assert computed == [True, True]  # lengths with and without a remainder


def test_activations_are_recomputed_without_the_trial(monkeypatch):
    """The first call of a kind is tried in the forward pass, but not in the recomputation."""
    monkeypatch.setattr(flex, "flex_kernel", lambda q, k, v, *options: q * k * v)
    monkeypatch.setattr(flex, "_compile_failures", {})
    call = Call(length=200)
    mask = call.mask()
    q, k, v, grad = call.tensors()
    q.requires_grad_()

    def attention(q):
        assert flex.compile_failure(q, k, v, mask, trained=True) is None
        return flex.attend(q, k, v, mask, 0.0)

    output = checkpoint(attention, q, use_reentrant=False)
    (q_grad,) = torch.autograd.grad(output, q, grad)
    torch.testing.assert_close(q_grad, grad * k * v)


def test_first_shapes_of_training_have_separate_kernels(monkeypatch):
    monkeypatch.setattr(flex_kernel, "_training_shapes", set())
    monkeypatch.setattr(flex_kernel, "MAX_TRAINING_SHAPES", 2)

    def has_own_kernel(length: int, batch: int = 2, trained: bool = True) -> bool:
        q, k, _, _ = Call(length=length, batch=batch).tensors()
        return flex_kernel.has_own_kernel(q.requires_grad_(trained), k)

    assert not has_own_kernel(128, trained=False)
    assert has_own_kernel(128)
    assert has_own_kernel(128, batch=1)
    assert not has_own_kernel(256)
    assert has_own_kernel(128)
    with torch.no_grad():
        assert not has_own_kernel(128)


@pytest.mark.slow  # the C++ compiler takes most of the time
def test_kernels_for_one_shape_and_for_all_are_separate():
    torch._dynamo.reset()
    call = Call(length=200, batch=1, width=32)
    q, k, v, _ = call.tensors()
    mask = call.mask()
    score_mod = flex._score_modification(mask, q.device)
    blocks = flex.causal_blocks(mask, q.device)
    expected = reference(call)[0]
    for attention in (flex_kernel.attention_for_all_shapes, flex_kernel.attention_for_one_shape):
        dynamo.counters.clear()
        output = attention()(q, k, v, score_mod, blocks, None)
        assert dynamo.counters["stats"]["unique_graphs"] == 1
        assert (output.double() - expected).abs().max() < 5e-6 * expected.abs().max()


@torch.no_grad()
def test_more_kernels_than_allowed_are_an_error(monkeypatch):
    """PyTorch would compute attention in quadratic memory instead."""
    torch._dynamo.reset()
    monkeypatch.setattr(flex_kernel, "MAX_KERNELS", 1)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    flex_kernel.attention_for_all_shapes.cache_clear()
    q, k, v, _ = Call(length=200, batch=1, width=32).tensors()
    mask = FutureMask(None, 200, 200)
    flex.attend(q, k, v, mask, 0.0)
    with pytest.raises(FailOnRecompileLimitHit):
        flex.attend(q.double(), k.double(), v.double(), mask, 0.0)
    flex_kernel.attention_for_all_shapes.cache_clear()
