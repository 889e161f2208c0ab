"""torch's scaled_dot_product_attention, in blocks of queries.

A block of queries looks only at the keys up to its last query, so about half of the causal square
is never computed and no (T, S) mask exists: memory is O(block · S).

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys it may see, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from .future_mask import FutureMask

#: Queries per call. Smaller blocks skip more of the future; larger ones launch fewer kernels.
QUERY_BLOCK = 256


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output; arguments as in :func:`alibi_fairseq.attention.eager.attend`.

    Returns:
        (B, H, T, D) in the type of v.
    """
    if mask.is_plain_causal:
        return scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)
    outputs = []
    for start in range(0, q.shape[2], QUERY_BLOCK):
        q_block = q[:, :, start : start + QUERY_BLOCK]  # (B, H, n, D)
        visible = mask.offset + start + q_block.shape[2]
        k_block, v_block = k[:, :, :visible], v[:, :, :visible]  # (B, H, K, D)
        scores_mask = mask.block(q_block, k_block, start, q.dtype)
        outputs.append(
            scaled_dot_product_attention(
                q_block, k_block, v_block, attn_mask=scores_mask, dropout_p=dropout_p
            )
        )
    return torch.cat(outputs, dim=2)
