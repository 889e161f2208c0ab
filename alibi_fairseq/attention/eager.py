"""The reference: softmax(q·k/√D + mask)·v, at least in fp32, with all weights materialised.

Cost: O(T·S) memory per head and sequence. The only backend that can return attention weights.
It goes from block to block of queries, as do backends that never allocate a (T, S) tensor; dropout is
drawn block by block, so that those can draw the same.

Shapes: B batch, H heads, T queries, S keys, D head size, n queries of a block, K keys visible to it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import dropout, pad
from torch.utils.checkpoint import checkpoint

from .future_mask import FutureMask

#: Maximum queries per block. Smaller blocks skip more of the future; larger ones launch fewer kernels.
QUERY_BLOCK = 256
#: Maximum scores of a block that is materialised: 8 MB in fp32.
SCORES = 2**21


def query_blocks(queries: int, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
    """(first query, one past the last query, keys visible to the last one) of each block."""
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        yield start, stop, offset + stop


def bounded_block(q: Tensor, keys: int) -> int:
    """Queries per block whose scores against all keys, over batch and heads, fit in ``SCORES``.

    The result is a power of two, at least 16, and depends only on shapes: attention dropout is drawn
    block by block, so all backends that draw it must use the same blocks.
    """
    size = QUERY_BLOCK
    while size > 16 and size * keys * q.shape[0] * q.shape[1] > SCORES:
        size //= 2
    return size


def attend_block(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, start: int, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Output (B, H, n, D) and weights before dropout (B, H, n, K) of queries from number ``start`` on.

    ``k`` and ``v`` (B, H, K, D) end with the last of these queries.
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(precise) * q.shape[-1] ** -0.5) @ k.to(precise).transpose(2, 3)  # (B, H, n, K)
    weights = torch.softmax(scores + mask.block(q, k, start, precise), dim=-1)
    kept = dropout(weights, dropout_p, training=dropout_p > 0)
    return (kept @ v.to(precise)).to(v.dtype), weights


def attend_recomputing(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> Tensor:
    """Attention that recomputes its weights, with the same dropout, in the backward pass.

    For attention dropout and learned biases, where there is no fused kernel. Memory between the
    passes is O(T·D). With the same random state the result equals that of ``eager``.
    """

    def output(q_block, k_block, v_block, start):
        return attend_block(q_block, k_block, v_block, mask, start, dropout_p)[0]

    outputs, size = [], bounded_block(q, mask.keys)
    for start, stop, visible in query_blocks(q.shape[2], mask.offset, size):
        block = (q[:, :, start:stop], k[:, :, :visible], v[:, :, :visible], start)
        if torch.is_grad_enabled():
            outputs.append(checkpoint(output, *block, use_reentrant=False))
        else:
            outputs.append(output(*block))
    return torch.cat(outputs, dim=2)


def unsupported_reason(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> None:
    """Runs everywhere."""


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    return attend_with_weights(q, k, v, mask, dropout_p)[0]


def attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Output (B, H, T, D) in the dtype of v; weights before dropout (B, H, T, S) in at least fp32."""
    outputs, weights, size = [], [], bounded_block(q, mask.keys)
    for start, stop, visible in query_blocks(q.shape[2], mask.offset, size):
        block = (q[:, :, start:stop], k[:, :, :visible], v[:, :, :visible])
        output, weight = attend_block(*block, mask, start, dropout_p)
        outputs.append(output)
        weights.append(pad(weight, (0, mask.keys - visible)))  # (B, H, n, S)
    return torch.cat(outputs, dim=2), torch.cat(weights, dim=2)
