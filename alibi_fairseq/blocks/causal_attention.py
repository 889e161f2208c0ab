"""Causal self-attention with any position method, cached or with earlier inputs.

Shapes: B batch, T new tokens, S keys, M earlier inputs, C model width, H query heads, G key and
value heads, D head size, F features of a token.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..attention import FutureMask, ScoreScale, attend
from ..positions import (
    PendingBias,
    PositionMethod,
    append_features,
    compute_features,
    feature_bias,
    rotate_by_features,
)
from .options import BlockOptions

#: Keys and values (B, G, S, D), and features of the tokens (B, heads, S, F) or None.
Cache = tuple[Tensor, Tensor, Tensor | None]


class CausalAttention(nn.Module):
    """Self-attention of one layer.

    Args:
        positions: position method, one object that all layers share.
        layer: index of the layer.
        options: parts of the block.
        score_scale: scaling of the queries, one object that all layers share, or None.
    """

    def __init__(
        self,
        positions: PositionMethod,
        layer: int,
        options: BlockOptions | None = None,
        score_scale: ScoreScale | None = None,
    ):
        super().__init__()
        options = options or BlockOptions()
        # The method of this layer, and the number of the layer among those with that method.
        self.positions, self.number = positions.layer_method(layer)
        self.layer = layer
        self.score_scale = score_scale
        width = self.positions.config.embed_dim
        self.head_dim = self.positions.config.head_dim
        key_width = self.positions.config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(width, width, bias=options.linear_biases)
        self.k_proj = nn.Linear(width, key_width, bias=options.linear_biases)
        self.v_proj = nn.Linear(width, key_width, bias=options.linear_biases)
        self.out_proj = nn.Linear(width, width, bias=options.linear_biases)
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if options.normalize_queries_keys:
            self.q_norm = nn.RMSNorm(self.head_dim, options.rms_norm_eps)
            self.k_norm = nn.RMSNorm(self.head_dim, options.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        cache: Cache | None = None,
        earlier: Tensor | None = None,
        **mask_options: Any,
    ) -> tuple[Tensor, Cache]:
        """Attend from new tokens to themselves and to cached or earlier ones.

        Args:
            x: (B, T, C).
            cache: second result of the call for the tokens before.
            earlier: inputs of this layer before ``x``, (B, M, C), which only provide keys and
                values.
            mask_options: more arguments of :class:`FutureMask`, such as ``key_padding``.

        Returns:
            The output, (B, T, C), and the cache for the next call.
        """
        num_tokens = x.shape[1]
        source = x if earlier is None else torch.cat([earlier, x], dim=1)  # (B, M + T, C)
        q = self.q_norm(self.split_heads(self.q_proj(x)))  # (B, H, T, D)
        k = self.k_norm(self.split_heads(self.k_proj(source)))  # (B, G, M + T, D)
        v = self.split_heads(self.v_proj(source))
        num_cached = 0 if cache is None else cache[0].shape[2]
        rotate = self.positions.rotation(num_cached, num_tokens, x.device)
        if rotate is not None:
            q, k = rotate(q, k)
        cached_features = None if cache is None else cache[2]
        states = source.transpose(0, 1)  # (M + T, B, C)
        features = compute_features(self.positions, self.number, states, cached_features)
        q, k = rotate_by_features(self.positions, self.number, features, q, k)
        if cache is not None:
            k, v, features = _extended(cache, k, v, features)
        num_keys = k.shape[2]
        bias = self.positions.bias(self.number, num_keys)
        if isinstance(bias, PendingBias):
            bias = feature_bias(self.positions, self.number, features)
        mask = FutureMask(bias, num_tokens, num_keys, **mask_options)
        if self.score_scale is not None:
            q = self.score_scale(self.layer, q, mask)
        output, _ = attend(q, k, v, mask)  # (B, H, T, D)
        output = output.transpose(1, 2).flatten(2)  # (B, T, C)
        return self.out_proj(output), (k, v, features)

    def split_heads(self, x: Tensor) -> Tensor:
        """Reshape (B, T, heads · D) to (B, heads, T, D)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


def _extended(cache: Cache, k: Tensor, v: Tensor, features: Tensor | None) -> Cache:
    """Return the cache with the keys, values, and features of new tokens at its end."""
    past_k, past_v, past_features = cache
    k = torch.cat([past_k, k], dim=2)  # (B, G, S, D)
    v = torch.cat([past_v, v], dim=2)
    if features is not None:
        features = append_features(past_features, features)  # (B, heads, S, F)
    return k, v, features
