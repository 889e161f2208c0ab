"""ALiBi's bias inside attention against Hugging Face's BLOOM and MPT, values and gradients."""

from __future__ import annotations

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions.alibi import LinearBias

BATCH, LENGTH, HEAD_DIM = 2, 50, 8


def bloom_bias(heads: int, real: torch.Tensor) -> torch.Tensor:
    """(B, H, 1, T): slope × position of the key among the real tokens."""
    return build_alibi_tensor(real.long(), heads, torch.float32).view(BATCH, heads, 1, LENGTH)


def mpt_bias(heads: int, real: torch.Tensor) -> torch.Tensor:
    """(1, H, 1, T): slope × (key − last key)."""
    return build_mpt_alibi_tensor(heads, LENGTH)[None]


@pytest.mark.parametrize("left_padding", [0, 7])
@pytest.mark.parametrize("peer", [bloom_bias, mpt_bias])
@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16])
def test_attention_equals_theirs(heads, peer, left_padding):
    q, k, v = torch.randn(3, BATCH, heads, LENGTH, HEAD_DIM, dtype=torch.float64).requires_grad_()
    real = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    real[0, :left_padding] = False
    hidden = ~real[:, None, None, :] | torch.ones(LENGTH, LENGTH).triu(1).bool()
    hidden = hidden & ~torch.eye(LENGTH).bool()  # padding sees itself, to stay finite
    scores = q @ k.transpose(2, 3) / HEAD_DIM**0.5 + peer(heads, real).double()
    theirs = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    mask = FutureMask(LinearBias(heads), LENGTH, LENGTH, ~real if left_padding else None)
    ours, _ = attend(q, k, v, mask)

    # Their slope × key is as large as 35 here and is rounded to fp32 at that size.
    seen = real[:, None, :, None]
    torch.testing.assert_close(ours * seen, theirs * seen, rtol=0, atol=1e-5)
    direction = torch.randn_like(theirs) * seen
    for ours_grad, theirs_grad in zip(
        torch.autograd.grad((ours * direction).sum(), (q, k, v)),
        torch.autograd.grad((theirs * direction).sum(), (q, k, v)),
    ):
        torch.testing.assert_close(ours_grad, theirs_grad, rtol=0, atol=1e-5)
