"""PyTorch's scaled_dot_product_attention, in blocks of queries.

A block of queries attends only to the keys up to its last query, so about half of the (T, S) square
is never computed and no (T, S) mask is allocated: memory is O(block · S). Where PyTorch has no
fused kernel (attention dropout on the CPU, learned biases), the backward pass recomputes the blocks
instead of storing their weights. Where the mask differs between sequences, it recomputes the masks.

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys visible to it, D head
size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from . import eager
from .eager import QUERY_BLOCK, attend_recomputing, query_blocks
from .future_mask import FutureMask

#: Alignment of masks in numbers, for the kernels of PyTorch.
ALIGNMENT = 8

unsupported_reason = eager.unsupported_reason  # every call is supported


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Return the output, (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    learned = mask.bias is not None and mask.bias.needs_grad
    if learned or (dropout_p > 0 and q.device.type == "cpu"):
        return attend_recomputing(q, k, v, mask, dropout_p)
    if mask.is_plain_causal:
        return scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)

    def attend_from(start: int, stop: int, visible: int) -> Tensor:
        first = mask.first_key(start) // ALIGNMENT * ALIGNMENT  # the keys before are masked
        q_block = q[:, :, start:stop]  # (B, H, n, D)
        k_block = k[:, :, first:visible]  # (B, H, K - first, D)
        v_block = v[:, :, first:visible]
        score_mask = mask.block(q_block, k[:, :, :visible], start, q.dtype)  # (B, H, n, K)
        score_mask = _align(score_mask[..., first:])
        return scaled_dot_product_attention(
            q_block, k_block, v_block, attn_mask=score_mask, dropout_p=dropout_p
        )

    # The kernel keeps each mask for the backward pass. Masks that all sequences share are slices of
    # one band, but other masks would need O(B · H · T · S) memory in every layer.
    per_sequence = mask.document_start is not None or mask.key_padding is not None
    recompute = per_sequence and torch.is_grad_enabled()
    outputs = []
    for block in query_blocks(q.shape[2], mask.offset, QUERY_BLOCK):
        if recompute:
            outputs.append(checkpoint(attend_from, *block, use_reentrant=False))
        else:
            outputs.append(attend_from(*block))
    return torch.cat(outputs, dim=2)


def _align(mask: Tensor) -> Tensor:
    """Copy a mask that PyTorch's memory-efficient kernel on a GPU would reject.

    PyTorch aligns masks by padding (``preprocess_mask`` in its ``attention.cpp``). But it looks
    only at the strides, not at where a slice of a larger tensor begins. No upstream issue is known.
    """
    if any(stride % ALIGNMENT for stride in mask.stride()[:-1]):
        return mask  # PyTorch pads it
    if mask.storage_offset() % ALIGNMENT == 0:
        return mask
    return mask.clone(memory_format=torch.contiguous_format)
