"""The readable reference: softmax(q·k/√D + mask)·v, all scores at once, at least in fp32.

Cost: O(T·S) memory per head and sequence. The only backend that can return attention weights.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .future_mask import FutureMask


def attend(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Attention output and weights.

    Args:
        q: (B, H, T, D); k, v: (B, H, S, D).
        mask: the future mask of this forward pass.
        dropout_p: probability of dropping an attention weight.

    Returns:
        Output (B, H, T, D) in the type of v, weights before dropout (B, H, T, S) in at least fp32.
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(precise) * q.shape[-1] ** -0.5) @ k.to(precise).transpose(2, 3)  # (B, H, T, S)
    weights = torch.softmax(scores + mask.block(q, k, 0, precise), dim=-1)
    kept = torch.nn.functional.dropout(weights, dropout_p, training=dropout_p > 0)
    return (kept @ v.to(precise)).to(v.dtype), weights
