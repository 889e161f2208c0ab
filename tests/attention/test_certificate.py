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

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def gradients(attention, inputs, grad):
    """Output of a function of q, k and v, and its gradients."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = attention(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def skipping(q, k, v):
    mask = FutureMask(LinearBias(q.shape[1]), q.shape[2], k.shape[2])
    return attend(q, k, v, mask, backend="skipping", strict=True)[0]


def dense(q, k, v):
    """The formula, in float64 throughout."""
    queries, keys = q.shape[2], k.shape[2]
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
def test_equal_to_the_dense_result(seed, heads, length, cached, size, outliers, far_match, common):
    """Also where single keys are huge, or the best match of every query is the farthest key."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, heads, length + cached, 16)
    q, k, v, grad = (torch.randn(shape, generator=generator).double() for _ in range(4))
    q, grad = size * q[:, :, cached:], grad[:, :, cached:]
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


@FEW
@given(
    seed=st.integers(0, 2**16),
    size=st.sampled_from([0.3, 1.0, 3.0]),
    heads=st.sampled_from([4, 8, 12]),
)
def test_keys_outside_the_window_weigh_less_than_rounding(seed, size, heads):
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


def test_windows_are_shorter_for_steeper_heads_and_narrow_types():
    q, k, _, _ = Call(length=2000, batch=1).tensors()
    windows = {
        t: certify(q.to(t), k.to(t), alibi_slopes(8)).windows[0]
        for t in (torch.float32, torch.bfloat16)
    }
    assert (windows[torch.float32].diff() >= 0).all()
    assert windows[torch.float32][0] < 80
    assert (windows[torch.bfloat16] <= windows[torch.float32]).all()
    assert windows[torch.bfloat16][0] < windows[torch.float32][0]


@pytest.mark.parametrize("bad", [math.inf, math.nan, 1e30])
def test_no_certificate_means_the_full_range(bad):
    q, k, _, _ = Call(length=200, batch=1).tensors()
    k[0, 3, 7, 2] = bad
    assert certify(q, k, alibi_slopes(8)).windows[0, 3] == 200


def test_a_bound_that_holds_for_one_head_only_widens_only_the_other():
    q, k, _, _ = Call(length=500, batch=1).tensors()
    before = certify(q, k, alibi_slopes(8)).windows[0]
    q[0, 1] *= 100
    after = certify(q, k, alibi_slopes(8)).windows[0]
    assert after[1] == 500 > before[1]
    assert torch.equal(after[2:], before[2:]) and after[0] == before[0]


def test_the_bound_holds_where_scores_differ_by_rounding_alone():
    """All keys are equal, so that no score exceeds the query's own, and all of them are large."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        q, key = (100 * torch.randn(1, 1, 1, 16, generator=generator) for _ in range(2))
        assert certify(q, key.expand(1, 1, 50, 16), torch.ones(1)).rise.item() >= 0


def test_neighbouring_heads_with_the_same_window_are_computed_together():
    """Windows in whole blocks of 64; apart from those whose exponents may overflow."""
    windows = torch.tensor([64.0, 1, 65, 100, 128, 900, 301])
    rise = torch.tensor([0.0, 0, 0, 0, math.nan, 0, 0])
    order = [1, 0, 2, 3, 4, 6, 5]
    groups = group_heads(windows, rise, order, keys=301)
    assert groups == [(0, 2, 64, False), (2, 4, 128, False), (4, 5, 128, True), (5, 7, 301, False)]


def test_common_part_of_all_keys_does_not_matter():
    """Softmax does not see it, so the certificate must not either: trained keys have a large one."""
    q, k, _, _ = Call(length=500, batch=1).tensors()
    shifted = certify(q, k + 7, alibi_slopes(8)).windows
    assert (shifted - certify(q, k, alibi_slopes(8)).windows).abs().max() <= 1


def test_future_tokens_change_nothing():
    q, k, v, _ = Call(length=300, batch=1).tensors()
    out, _ = attend(q, k, v, Call(length=300).mask(), backend="skipping")
    before = out[:, :, :200].clone()
    # Different in value and not in size: the windows of a row depend on the norms of the others.
    k[:, :, 200:], v[:, :, 200:] = -k[:, :, 200:], 9.0
    out, _ = attend(q, k, v, Call(length=300).mask(), backend="skipping")
    torch.testing.assert_close(out[:, :, :200], before, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1, 3, 10, 30, 100])
def test_large_queries_and_keys_in_short_types(size, dtype):
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
