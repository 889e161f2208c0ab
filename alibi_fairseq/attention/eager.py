"""The reference: softmax(q·k/√D + mask)·v, at least in fp32, with all weights materialised.

Cost: O(T·S) memory per head and sequence. The only backend that can return attention weights.
Dropout is drawn block by block, so that backends that never hold all weights can draw the same.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..positions import ScoreBias
from .blocks import attend_block, bounded_block, query_blocks
from .future_mask import FutureMask


def supports(bias: ScoreBias | None) -> bool:
    """Every bias."""
    return True


def unsupported_reason(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> None:
    """Runs everywhere."""


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    return attend_with_weights(q, k, v, mask, dropout_p)[0]


def attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Attention output and weights.

    Args:
        q: (B, H, T, D); k, v: (B, H, S, D).
        mask: the future mask of this forward pass.
        dropout_p: probability of dropping an attention weight.

    Returns:
        Output (B, H, T, D) in the dtype of v, weights before dropout (B, H, T, S) in at least fp32.
    """
    outputs, weights, size = [], [], bounded_block(q, mask.keys)
    for start, stop, visible in query_blocks(q.shape[2], mask.offset, size):
        block = (q[:, :, start:stop], k[:, :, :visible], v[:, :, :visible])
        output, weight = attend_block(*block, mask, start, dropout_p)
        outputs.append(output)
        weights.append(pad(weight, (0, mask.keys - visible)))  # (B, H, n, S)
    return torch.cat(outputs, dim=2), torch.cat(weights, dim=2)
