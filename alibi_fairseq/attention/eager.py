"""Reference backend: softmax(q·k/√D + mask)·v in at least fp32, with all weights in memory.

Cost: O(T·S) memory per head and sequence. Only this backend can return attention weights.
It computes one block of queries at a time, like the backends that never allocate a (T, S) tensor.
Dropout is drawn per block, so these backends can draw the same dropout.

Shapes: B batch, H heads, T queries, S keys, D head size, n queries of a block, K keys visible to
it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import dropout, pad
from torch.utils.checkpoint import checkpoint

from .future_mask import FutureMask

#: Maximum queries per block. Smaller blocks skip more future keys; larger ones launch fewer
#: kernels.
QUERY_BLOCK = 256
#: Maximum scores of a block, over batch and heads: 8 MB in fp32.
MAX_BLOCK_SCORES = 2**21


def query_blocks(num_queries: int, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield (first query, one past the last query, keys visible to the last query) per block.

    Args:
        num_queries: T.
        offset: number of keys before the first query, S − T.
        size: queries per block.
    """
    for start in range(0, num_queries, size):
        stop = min(start + size, num_queries)
        yield start, stop, offset + stop


def bounded_block(q: Tensor, num_keys: int) -> int:
    """Return the queries per block for which all scores fit in ``MAX_BLOCK_SCORES``.

    The result is a power of two, at least 16, and depends only on shapes: attention dropout is
    drawn per block, so all backends that draw it must use the same blocks.

    Args:
        q: (B, H, T, D) queries.
        num_keys: S.
    """
    size = QUERY_BLOCK
    batch, heads = q.shape[:2]
    while size > 16 and size * num_keys * batch * heads > MAX_BLOCK_SCORES:
        size //= 2
    return size


def attend_block(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, first_query: int, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Attend from one block of queries.

    Args:
        q: (B, H, n, D) consecutive queries.
        k, v: (B, H, K, D) keys and values up to the last of these queries.
        mask: the mask of all queries.
        first_query: index of the first of these queries.
        dropout_p: probability of dropping a weight.

    Returns:
        Output (B, H, n, D) in the dtype of ``v``, and weights before dropout, (B, H, n, K).
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    scaled = q.to(precise) * q.shape[-1] ** -0.5
    scores = scaled @ k.to(precise).transpose(2, 3)  # (B, H, n, K)
    weights = torch.softmax(scores + mask.block(q, k, first_query, precise), dim=-1)
    dropped = dropout(weights, dropout_p, training=dropout_p > 0)
    output = dropped @ v.to(precise)  # (B, H, n, D)
    return output.to(v.dtype), weights


def attend_recomputing(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> Tensor:
    """Attend, and recompute the weights with the same dropout in the backward pass.

    This serves attention dropout and learned biases, which have no fused kernel. Memory between the
    passes is O(T·D). With the same random state the output (B, H, T, D) equals that of ``eager``.
    """

    def attend_from(q_block: Tensor, k_block: Tensor, v_block: Tensor, first_query: int) -> Tensor:
        output, _ = attend_block(q_block, k_block, v_block, mask, first_query, dropout_p)
        return output

    outputs = []
    size = bounded_block(q, mask.num_keys)
    for start, stop, visible in query_blocks(q.shape[2], mask.offset, size):
        block = (q[:, :, start:stop], k[:, :, :visible], v[:, :, :visible], start)
        if torch.is_grad_enabled():
            outputs.append(checkpoint(attend_from, *block, use_reentrant=False))
        else:
            outputs.append(attend_from(*block))
    return torch.cat(outputs, dim=2)


def unsupported_reason(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> None:
    """Return None: every call is supported."""


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Return the output, (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    output, _ = attend_with_weights(q, k, v, mask, dropout_p)
    return output


def attend_with_weights(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """Attend, and return the weights too.

    Returns:
        Output (B, H, T, D) in the dtype of ``v``, and weights before dropout, (B, H, T, S), in at
        least fp32.
    """
    outputs = []
    weights = []
    size = bounded_block(q, mask.num_keys)
    for start, stop, visible in query_blocks(q.shape[2], mask.offset, size):
        q_block = q[:, :, start:stop]  # (B, H, n, D)
        k_block = k[:, :, :visible]  # (B, H, K, D)
        v_block = v[:, :, :visible]
        output, block_weights = attend_block(q_block, k_block, v_block, mask, start, dropout_p)
        outputs.append(output)
        weights.append(pad(block_weights, (0, mask.num_keys - visible)))  # (B, H, n, S)
    return torch.cat(outputs, dim=2), torch.cat(weights, dim=2)
