"""Self-attention with fairseq's parameter names and cache, computed by our backends.

Shapes: T new tokens, B batch, C model width, H heads, D head size, M remembered states,
S = M or cached + T.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..attention import FutureMask, attend
from ..positions import Rotation


@dataclass(frozen=True)
class AttentionContext:
    """What a forward pass tells the attention of one layer; passed where fairseq passes its mask.

    Attributes:
        mask: the future mask with the position method's bias injected.
        rotation: how to turn queries and keys, or None.
        memory: (M, B, C) past states to attend to in front of the new tokens, or None.
    """

    mask: FutureMask
    rotation: Rotation | None = None
    memory: Tensor | None = None


class SelfAttention(MultiheadAttention):
    """Drop-in for fairseq's: same parameters, same incremental state, another computation."""

    backend: str = "auto"

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: AttentionContext | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from the new tokens to themselves and to what is cached or remembered.

        Args:
            query: (T, B, C). ``key`` and ``value`` are the same tensor in self-attention and are
                not looked at; padding is part of the context's mask.
            incremental_state: keeps keys and values between calls when given.
            need_weights: also return the weights, averaged over heads unless ``need_head_weights``.
            attn_mask: the context of this forward pass.

        Returns:
            Output (T, B, C); weights (B, T, S), or (H, B, T, S) per head, or None.
        """
        context = attn_mask
        source = query
        if context.memory is not None:
            source = torch.cat([context.memory, query])  # (M + T, B, C)
        q = self._split_heads(self.q_proj(query))  # (B, H, T, D)
        k = self._split_heads(self.k_proj(source))  # (B, H, M + T, D)
        v = self._split_heads(self.v_proj(source))
        if context.rotation is not None:
            q, k = context.rotation(q, k)
        if incremental_state is not None:
            k, v = self._append_to_cache(incremental_state, k, v)
        dropping = self.training or self.dropout_module.apply_during_inference
        output, weights = attend(
            q,
            k,
            v,
            context.mask,
            dropout_p=self.dropout_module.p if dropping else 0.0,
            backend=self.backend,
            need_weights=need_weights or need_head_weights,
            strict=self.training,
        )
        output = output.permute(2, 0, 1, 3).reshape(query.shape)  # (T, B, C)
        if weights is not None:
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)
        return self.out_proj(output), weights

    def _split_heads(self, x: Tensor) -> Tensor:
        length, batch, _ = x.shape
        x = x.view(length, batch, self.num_heads, self.head_dim)  # (T, B, H, D)
        return x.permute(1, 2, 0, 3)  # (B, H, T, D)

    def _append_to_cache(self, incremental_state: dict, k: Tensor, v: Tensor):
        saved = self._get_input_buffer(incremental_state)
        if "prev_key" in saved:
            k = torch.cat([saved["prev_key"], k], dim=2)  # (B, H, S, D)
            v = torch.cat([saved["prev_value"], v], dim=2)
        self._set_input_buffer(incremental_state, {"prev_key": k, "prev_value": v})
        return k, v

    def cached_length(self, incremental_state: dict | None) -> int:
        """Number of tokens whose keys are cached."""
        saved = self._get_input_buffer(incremental_state) if incremental_state else {}
        return saved["prev_key"].shape[2] if "prev_key" in saved else 0
