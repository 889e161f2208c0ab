"""Attention with ALiBi on the tensors of transformers' models.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import math

from torch import Tensor
from transformers.integrations.sdpa_attention import repeat_kv

from ..attention import FutureMask, attend
from ..positions.alibi import LinearBias


def attend_with_bias(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: LinearBias,
    padding: Tensor,
    dropout: float,
    scaling: float | None = None,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute causal attention with ALiBi.

    Args:
        query: (B, H, T, D).
        key, value: (B, H or fewer, S, D). With fewer heads, each serves consecutive query heads.
        bias: score bias.
        padding: result of :func:`.attention.padded_keys`.
        dropout: probability of dropping an attention weight.
        scaling: factor of the scores; 1/√D by default.
        need_weights: also return the attention weights, in quadratic memory.

    Returns:
        Output (B, T, H, D), and weights (B, H, T, S) or None.
    """
    heads, queries, head_dim = query.shape[1:]
    key = repeat_kv(key, heads // key.shape[1])
    value = repeat_kv(value, heads // value.shape[1])
    if scaling is not None:
        query = query * (scaling * math.sqrt(head_dim))  # attend() divides scores by √D
    key_padding = padding if padding.shape[1] else None
    mask = FutureMask(bias, queries, key.shape[2], key_padding=key_padding)
    output, weights = attend(query, key, value, mask, dropout, need_weights=need_weights)
    return output.transpose(1, 2), weights
