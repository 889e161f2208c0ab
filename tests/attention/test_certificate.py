"""Skipping changes results by rounding only, for any queries and keys."""

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

SETTINGS = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def gradients(attention, inputs, grad):
    """Return the output of a function of q, k, and v, and its gradients."""
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


@SETTINGS
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
    """Some keys may be huge, and the best match of every query may be the farthest key."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, grad = torch.randn(4, 1, heads, length + cached, 16, generator=generator).double()
    q = size * q[:, :, cached:]
    grad = grad[:, :, cached:]
    k = k + common * torch.randn(1, heads, 1, 16, generator=generator).double()
    if outliers:
        k[:, :, :: max(1, length // 3)] *= 50
    if far_match:
        k[:, :, 0] = 5 * q.mean(dim=2)
    results = gradients(skipping, (q, k, v), grad)
    expected = gradients(dense, (q, k, v), grad)

    # Only rounding may differ. The rounding of scores is proportional to them. Gradients are sums
    # that may cancel, so their rounding is proportional to the products and not to the sums.
    largest_score = max(1.0, (q.norm(dim=-1).max() * k.norm(dim=-1).max() / 4).item())
    largest_product = (grad.norm(dim=-1).max() * v.norm(dim=-1).max()).item()
    largest_input = max(q.abs().max().item(), k.abs().max().item())
    input_gradient = largest_product * largest_input
    magnitudes = (1.0, input_gradient, input_gradient, 1.0)  # of the output, dq, dk, and dv
    for result, exact, magnitude in zip(results, expected, magnitudes, strict=True):
        largest = max(exact.abs().max().item(), magnitude)
        error = (result - exact).abs().max().item()
        assert error <= 1e-13 * largest_score * largest


@settings(SETTINGS, max_examples=12)
@given(
    seed=st.integers(0, 2**16),
    size=st.sampled_from([0.3, 1.0, 3.0]),
    heads=st.sampled_from([4, 8, 12]),
)
def test_skipped_keys_weigh_less_than_rounding(seed, size, heads):
    """The guarantee of the certificate, compared with exact weights."""
    generator = torch.Generator().manual_seed(seed)
    q, k = size * torch.randn(2, 2, heads, 400, 16, generator=generator)
    slopes = alibi_slopes(heads)
    windows = certify(q, k, slopes).windows  # (B, H)

    positions = torch.arange(400)
    distance = positions[:, None] - positions
    products = q.double() @ k.double().transpose(2, 3) / 4
    scores = products - slopes.double().view(-1, 1, 1) * distance
    weights = torch.softmax(scores.masked_fill(distance < 0, -math.inf), dim=-1)
    outside = distance > windows[..., None, None]
    skipped_weight = (weights * outside).sum(-1)
    assert skipped_weight.max() < torch.finfo(torch.float32).eps / 8
    if size < 3:
        assert outside.any(), "nothing was skipped, so nothing was tested"


def windows_of(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    return certify(q, k, alibi_slopes(8)).windows[0]  # (H,)


@pytest.fixture
def long_call():
    """Return q and k of 8 heads and 2,000 tokens."""
    q, k, _, _ = Call(length=2000, batch=1).tensors()
    return q, k


def test_windows_grow_as_slopes_shrink(long_call):
    windows = windows_of(*long_call)
    assert (windows.diff() >= 0).all()
    assert windows[0] < 80


def test_windows_are_narrower_in_bf16(long_call):
    q, k = long_call
    windows = windows_of(q, k)
    in_bf16 = windows_of(q.bfloat16(), k.bfloat16())
    assert (in_bf16 <= windows).all()
    assert in_bf16[0] < windows[0]


def test_windows_ignore_common_part_of_keys(long_call):
    """Softmax ignores a part that all keys share. In trained keys it is large."""
    q, k = long_call
    difference = windows_of(q, k + 7) - windows_of(q, k)
    assert difference.abs().max() <= 1


def test_large_queries_widen_window_of_their_head_only(long_call):
    q, k = long_call
    expected = windows_of(q, k).tolist()
    expected[1] = 2000
    q[0, 1] *= 100
    assert windows_of(q, k).tolist() == expected


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e30])
def test_head_without_certificate_has_full_window(long_call, value):
    q, k = long_call
    k[0, 3, 7, 2] = value
    assert windows_of(q, k)[3] == 2000


def test_bound_holds_for_nearly_equal_scores():
    """All keys are equal, so no score exceeds the query's own, and all scores are large."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        q, key = 100 * torch.randn(2, 1, 1, 1, 16, generator=generator)
        certificate = certify(q, key.expand(1, 1, 50, 16), torch.ones(1))
        assert certificate.rise.item() >= 0


def test_adjacent_heads_with_equal_windows_share_call():
    """Windows are whole blocks of 64. A head whose exponents may overflow is separate."""
    windows = torch.tensor([64.0, 1, 65, 100, 128, 900, 301])
    rise = torch.tensor([0.0, 0, 0, 0, math.nan, 0, 0])
    order = [1, 0, 2, 3, 4, 6, 5]
    groups = group_heads(windows, rise, order, num_keys=301)
    assert groups == [(0, 2, 64, False), (2, 4, 128, False), (4, 5, 128, True), (5, 7, 301, False)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [3, 30, 100])
def test_large_queries_and_keys_in_half_precision(size, dtype):
    """Without subtracting the row's maximum, exponents overflow from a size of about 10 on."""
    generator = torch.Generator().manual_seed(size)
    q = size * torch.randn(1, 8, 400, 16, generator=generator)
    k = size * torch.randn(1, 8, 400, 16, generator=generator)
    v = torch.randn(1, 8, 400, 16, generator=generator)
    grad = torch.randn(1, 8, 400, 16, generator=generator)
    q, k, v, grad = (x.to(dtype) for x in (q, k, v, grad))
    k[:, :, 0] = size * q[:, :, 200:].mean(2).sign()  # a far key that many queries score highest
    results = gradients(skipping, (q, k, v), grad)
    expected = gradients(dense, (q.double(), k.double(), v.double()), grad.double())

    # Scores grow with size². Their rounding, relative to 1, is an error of the weights.
    rounding_of_scores = torch.finfo(torch.float32).eps * max(1, 16 * size**2)
    rounding = rounding_of_scores + 2 * torch.finfo(dtype).eps
    for result, exact in zip(results, expected, strict=True):
        assert result.isfinite().all()
        largest = exact.abs().max().clamp(min=1)
        assert (result - exact).abs().max() <= 4 * rounding * largest
