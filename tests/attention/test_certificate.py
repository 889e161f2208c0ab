"""Skipping never changes a result by more than rounding, whatever the queries and keys are."""

from __future__ import annotations

import math

import pytest
import torch
from attention_calls import Call
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.attention.banded import group_heads
from alibi_fairseq.attention.skipping import certify
from alibi_fairseq.positions import alibi_slopes
from alibi_fairseq.positions.alibi import LinearBias

FEW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def gradients(attention, inputs, grad):
    """Output of a function of q, k and v, and its gradients."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def skipping(q, k, v):
    mask = FutureMask(LinearBias(q.shape[1]), q.shape[2], k.shape[2])
    return attend(q, k, v, mask, backend="skipping", strict=True)[0]


def dense(q, k, v):
    """Compute attention from the formula in float64."""
    queries = q.shape[2]
    keys = k.shape[2]
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    slopes = alibi_slopes(q.shape[1]).double().view(-1, 1, 1)
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5 - slopes * distance
    return torch.softmax(scores.masked_fill(distance < 0, -math.inf), dim=-1) @ v


@FEW
@given(
    seed=st.integers(0, 2**16),
    heads=st.sampled_from([1, 2, 8, 12]),
    length=st.integers(1, 300),
    cached=st.sampled_from([0, 0, 1, 150]),
    size=st.sampled_from([0.0, 1e-3, 1.0, 5.0, 30.0, 200.0]),
    outliers=st.booleans(),
    far_match=st.booleans(),
    common=st.sampled_from([0.0, 10.0]),
)
@example(0, 8, 300, 0, 30.0, True, True, 10.0)
def test_skipping_matches_dense_attention(
    seed, heads, length, cached, size, outliers, far_match, common
):
    """Also where single keys are huge, or the best match of every query is the farthest key."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, heads, length + cached, 16)
    q, k, v, grad = (torch.randn(shape, generator=generator).double() for _ in range(4))
    q = size * q[:, :, cached:]
    grad = grad[:, :, cached:]
    k = k + common * torch.randn(1, heads, 1, 16, generator=generator).double()
    if outliers:
        k[:, :, :: max(1, length // 3)] *= 50
    if far_match:
        k[:, :, 0] = 5 * q.mean(dim=2)
    found, expected = (gradients(f, (q, k, v), grad) for f in (skipping, dense))
    # Scores are sums of products: their rounding, as large as they are, is all that may differ.
    scores = max(1.0, (q.norm(dim=-1).max() * k.norm(dim=-1).max() / 4).item())
    # A gradient is a sum of products too, and may cancel to nothing.
    products = (grad.norm(dim=-1).max() * v.norm(dim=-1).max()).item()
    largest = max(q.abs().max().item(), k.abs().max().item())
    sizes = (1.0, products * largest, products * largest, 1.0)
    for a, b, size in zip(found, expected, sizes, strict=True):
        size = max(b.abs().max().item(), size)
        assert (a - b).abs().max().item() <= 1e-13 * scores * size


@settings(FEW, max_examples=12)
@given(
    seed=st.integers(0, 2**16),
    size=st.sampled_from([0.3, 1.0, 3.0]),
    heads=st.sampled_from([4, 8, 12]),
)
def test_skipped_keys_weigh_less_than_rounding(seed, size, heads):
    """The statement of the certificate itself, on the exact weights."""
    generator = torch.Generator().manual_seed(seed)
    q, k = (size * torch.randn(2, heads, 400, 16, generator=generator) for _ in range(2))
    slopes = alibi_slopes(heads)
    windows = certify(q, k, slopes).windows  # (B, H)
    distance = torch.arange(400)[:, None] - torch.arange(400)
    scores = q.double() @ k.double().transpose(2, 3) / 4 - slopes.double().view(-1, 1, 1) * distance
    weights = torch.softmax(scores.masked_fill(distance < 0, -math.inf), dim=-1)
    outside = distance > windows[..., None, None]
    share = (weights * outside).sum(-1)
    assert share.max() < torch.finfo(torch.float32).eps / 8
    if size < 3:
        assert outside.any(), "nothing was skipped, so nothing was tested"


def windows_of(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return certify(q, k, alibi_slopes(8)).windows[0]  # (H,)


def test_windows_depend_on_slope_type_and_head():
    q, k, _, _ = Call(length=2000, batch=1).tensors()
    found = windows_of(q, k)
    narrow = windows_of(q.bfloat16(), k.bfloat16())
    assert (found.diff() >= 0).all() and found[0] < 80
    assert (narrow <= found).all() and narrow[0] < found[0]
    # Softmax does not see what all keys have in common; trained keys have much.
    assert (windows_of(q, k + 7) - found).abs().max() <= 1
    q[0, 1] *= 100
    assert windows_of(q, k).tolist() == [found[0], 2000, *found[2:]]
    for bad in (math.inf, math.nan, 1e30):  # no certificate means the full range
        k[0, 3, 7, 2] = bad
        assert windows_of(q, k)[3] == 2000


def test_bound_holds_for_nearly_equal_scores():
    """All keys are equal, so that no score exceeds the query's own, and all of them are large."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        q, key = (100 * torch.randn(1, 1, 1, 16, generator=generator) for _ in range(2))
        assert certify(q, key.expand(1, 1, 50, 16), torch.ones(1)).rise.item() >= 0


def test_adjacent_heads_with_equal_windows_share_call():
    """Windows in whole blocks of 64; apart from those whose exponents may overflow."""
    windows = torch.tensor([64.0, 1, 65, 100, 128, 900, 301])
    rise = torch.tensor([0.0, 0, 0, 0, math.nan, 0, 0])
    order = [1, 0, 2, 3, 4, 6, 5]
    groups = group_heads(windows, rise, order, keys=301)
    assert groups == [(0, 2, 64, False), (2, 4, 128, False), (4, 5, 128, True), (5, 7, 301, False)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [3, 30, 100])
def test_large_queries_and_keys_in_half_precision(size, dtype):
    """Without subtracting the row's maximum the exponents overflow from a size of about 10 on."""
    generator = torch.Generator().manual_seed(size)
    q, k, v, grad = (torch.randn(1, 8, 400, 16, generator=generator) for _ in range(4))
    q, k, v, grad = (x.to(dtype) for x in (size * q, size * k, v, grad))
    k[:, :, 0] = size * q[:, :, 200:].mean(2).sign()  # a far key that many queries score highest
    found = gradients(skipping, (q, k, v), grad)
    assert all(x.isfinite().all() for x in found)
    expected = gradients(dense, (q.double(), k.double(), v.double()), grad.double())
    # Scores grow with size²; their rounding, relative to 1, is an error of the weights.
    eps = torch.finfo(torch.float32).eps * max(1, 16 * size**2) + 2 * torch.finfo(dtype).eps
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).abs().max() <= 4 * eps * theirs.abs().max().clamp(min=1)
