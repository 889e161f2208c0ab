"""Key and value heads that several query heads share, compared with PyTorch's ``enable_gqa``."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions.alibi import LinearBias

HEADS = [(8, 8), (8, 2), (8, 1), (6, 3), (12, 4), (5, 1)]


@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "skipping"])
@pytest.mark.parametrize("bias", [None, "alibi"])
@pytest.mark.parametrize(("heads", "key_value_heads"), HEADS)
def test_values_and_gradients_equal_pytorch(heads, key_value_heads, bias, backend):
    if backend == "skipping" and bias is None:
        pytest.skip("skipping needs a bias")
    queries, keys = 70, 90  # 20 cached keys
    q = torch.randn(2, heads, queries, 16, requires_grad=True)
    k, v = (torch.randn(2, key_value_heads, keys, 16, requires_grad=True) for _ in range(2))
    score_bias = LinearBias(heads) if bias else None
    mask = FutureMask(score_bias, queries, keys)
    output, _ = attend(q, k, v, mask, backend=backend, strict=True)

    distance = torch.arange(20, keys)[:, None] - torch.arange(keys)  # (T, S)
    dense = torch.zeros(heads, queries, keys, dtype=torch.float64)
    if score_bias is not None:
        dense = score_bias.at(distance.clamp(min=0)).double()
    dense = dense.masked_fill(distance < 0, -torch.inf)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = scaled_dot_product_attention(*exact, attn_mask=dense, enable_gqa=True)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-5)

    direction = torch.randn_like(expected)
    gradients = torch.autograd.grad((output * direction).sum(), (q, k, v))
    exact_gradients = torch.autograd.grad((expected * direction).sum(), exact)
    for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
        torch.testing.assert_close(gradient.double(), exact_gradient, rtol=0, atol=1e-4)
