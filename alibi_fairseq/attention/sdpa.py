"""torch's scaled_dot_product_attention, in blocks of queries.

A block of queries attends only to the keys up to its last query, so about half of the (T, S) square
is never computed and no (T, S) mask is allocated: memory is O(block · S). Where torch has no fused
kernel (attention dropout on the CPU, learned biases) the blocks are recomputed in the backward pass
instead of storing their weights.

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys visible to it, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from . import eager
from .eager import QUERY_BLOCK, attend_recomputing, query_blocks
from .future_mask import FutureMask

unsupported_reason = eager.unsupported_reason  # every call


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    learned = mask.bias is not None and mask.bias.needs_grad
    if learned or (dropout_p > 0 and q.device.type == "cpu"):
        return attend_recomputing(q, k, v, mask, dropout_p)
    if mask.is_plain_causal:
        return scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)
    outputs = []
    for start, stop, visible in query_blocks(q.shape[2], mask.offset, QUERY_BLOCK):
        q_block = q[:, :, start:stop]  # (B, H, n, D)
        first = mask.first_key(start)
        scores_mask = mask.block(q_block, k[:, :, :visible], start, q.dtype)[..., first:]
        k_block, v_block = k[:, :, first:visible], v[:, :, first:visible]  # (B, H, K - first, D)
        outputs.append(
            scaled_dot_product_attention(
                q_block, k_block, v_block, attn_mask=scores_mask, dropout_p=dropout_p
            )
        )
    return torch.cat(outputs, dim=2)
