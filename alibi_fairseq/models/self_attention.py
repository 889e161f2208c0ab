"""Self-attention with fairseq's parameter names and cache, computed by this package's backends.

Shapes: T new tokens, B batch, C model width, H query heads, G key and value heads, D head size,
M earlier inputs, S = M or cached + T, F features of a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from ..attention import FutureMask, attend
from ..positions import (
    PendingBias,
    PositionMethod,
    Rotation,
    append_features,
    compute_features,
    feature_bias,
    rotate_by_features,
)

#: Spare tokens of a buffer of cached keys and values; at least half of the tokens in it.
_ROOM = 64
_BUFFER = "_buffer_with_room"
_FILLED = "_tokens_filled"


@dataclass(frozen=True)
class AttentionContext:
    """Arguments of one layer's attention, passed in place of fairseq's attention mask.

    Attributes:
        mask: the future mask with the position method's bias.
        method: position method of the layer, for features of the tokens.
        number: index of the layer among those with this method.
        rotation: rotates queries and keys, or None.
        earlier: (M, B, C) inputs of the layer before the new tokens, which only provide keys and
            values, or None.
        scale: scales the queries (B, H, T, D) by the number of keys they see, or None.
    """

    mask: FutureMask
    method: PositionMethod
    number: int = 0
    rotation: Rotation | None = None
    earlier: Tensor | None = None
    scale: Callable[[Tensor, FutureMask], Tensor] | None = None


class SelfAttention(MultiheadAttention):
    """Replacement for fairseq's attention with the same parameters and incremental state.

    Args:
        embed_dim: model width C.
        num_heads: number of query heads H.
        key_value_heads: number of key and value heads G, each shared by H / G query heads; 0: H.
        rms_norm_eps: eps of an RMSNorm of each query and key head; None: no such norm.
        options: arguments of fairseq's class.
    """

    backend: str = "auto"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        key_value_heads: int = 0,
        rms_norm_eps: float | None = None,
        *,
        bias: bool = True,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        **options,
    ):
        noise = {"q_noise": q_noise, "qn_block_size": qn_block_size}
        super().__init__(embed_dim, num_heads, bias=bias, **noise, **options)
        if key_value_heads not in (0, num_heads):
            width = key_value_heads * self.head_dim
            self.k_proj = quant_noise(nn.Linear(embed_dim, width, bias), q_noise, qn_block_size)
            self.v_proj = quant_noise(nn.Linear(embed_dim, width, bias), q_noise, qn_block_size)
            for projection in (self.k_proj, self.v_proj):
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)  # as in fairseq
        self.q_norm: nn.Module = nn.Identity()
        self.k_norm: nn.Module = nn.Identity()
        if rms_norm_eps is not None:
            self.q_norm = nn.RMSNorm(self.head_dim, rms_norm_eps)
            self.k_norm = nn.RMSNorm(self.head_dim, rms_norm_eps)

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
        """Attend from the new tokens to themselves and to cached or earlier ones.

        Args:
            query: (T, B, C). ``key`` and ``value`` are the same tensor in self-attention and are
                ignored; padding is part of the context's mask.
            need_weights: also return the weights, averaged over heads unless ``need_head_weights``.

        Returns:
            Output (T, B, C); weights (B, T, S), or (H, B, T, S) per head, or None.
        """
        context = attn_mask
        assert context is not None, "the decoder passes a context to every layer"
        source = query
        if context.earlier is not None:
            source = torch.cat([context.earlier, query])  # (M + T, B, C)
        q = self.q_norm(self._split_heads(self.q_proj(query)))  # (B, H, T, D)
        k = self.k_norm(self._split_heads(self.k_proj(source)))  # (B, G, M + T, D)
        v = self._split_heads(self.v_proj(source))
        if context.rotation is not None:
            q, k = context.rotation(q, k)
        cached = self._cached_features(incremental_state)
        features = compute_features(context.method, context.number, source, cached)
        q, k = rotate_by_features(context.method, context.number, features, q, k)
        if context.scale is not None:
            q = context.scale(q, context.mask)
        if incremental_state is not None:
            k, v, features = self._append_to_cache(incremental_state, k, v, features)
        mask = context.mask
        if isinstance(mask.bias, PendingBias):
            mask = mask.with_bias(feature_bias(context.method, context.number, features))
        dropping = self.training or self.dropout_module.apply_during_inference
        output, weights = attend(
            q,
            k,
            v,
            mask,
            dropout_p=self.dropout_module.p if dropping else 0.0,
            backend=self.backend,
            need_weights=need_weights or need_head_weights,
            strict=self.training,
        )
        output = output.permute(2, 0, 1, 3).reshape(query.shape)  # (T, B, C)
        if weights is not None and need_head_weights:
            weights = weights.transpose(0, 1)  # (H, B, T, S)
        elif weights is not None:
            weights = weights.mean(dim=1)  # (B, T, S)
        return self.out_proj(output), weights

    def _split_heads(self, x: Tensor) -> Tensor:
        """Reshape (T, B, heads · D) to (B, heads, T, D)."""
        x = x.unflatten(-1, (-1, self.head_dim))  # (T, B, heads, D)
        return x.permute(1, 2, 0, 3)

    def _cached_features(self, incremental_state: dict | None) -> Tensor | None:
        """Return the features of the cached tokens, (B, heads, S - T, F), or None."""
        if incremental_state is None:
            return None
        return self._get_input_buffer(incremental_state).get("prev_features")

    def _append_to_cache(
        self, incremental_state: dict, k: Tensor, v: Tensor, features: Tensor | None
    ):
        """Append keys, values, and features of new tokens to the cache; return those of all tokens.

        Args:
            incremental_state: fairseq's cache of all layers.
            k, v: (B, G, T, D).
            features: (B, heads, T, F), or None.

        Returns:
            Keys and values (B, G, S, D), and features (B, heads, S, F) or None.
        """
        saved = self._get_input_buffer(incremental_state)
        if "prev_key" in saved:
            k = appended(saved["prev_key"], k)  # (B, G, S, D)
            v = appended(saved["prev_value"], v)
        new = {"prev_key": k, "prev_value": v}
        if features is not None:
            features = append_features(saved.get("prev_features"), features)
            new["prev_features"] = features
        self._set_input_buffer(incremental_state, new)
        return k, v, features

    def get_incremental_state(self, incremental_state, key):
        """Return what fairseq does, without the name of this layer's cache if there is no cache.

        fairseq formats the name, which is random, in every call. Compiled code that depends on it
        is compiled for each layer, until PyTorch compiles no more of them (not reported upstream).
        """
        if incremental_state is None:
            return None
        return super().get_incremental_state(incremental_state, key)

    def cached_length(self, incremental_state: dict | None) -> int:
        """Return the number of tokens whose keys are cached."""
        if not incremental_state:
            return 0
        saved = self._get_input_buffer(incremental_state)
        return saved["prev_key"].shape[2] if "prev_key" in saved else 0


def appended(cached: Tensor, new: Tensor) -> Tensor:
    """Concatenate (B, G, S, D) and (B, G, T, D) as ``torch.cat([cached, new], dim=2)``.

    The buffer of ``cached`` is used where it has room: a new token does not copy earlier tokens.

    The result is a part of a larger buffer that remembers how far it is filled. Only the part that
    reaches so far is extended in place: two continuations of the same tokens never share what
    follows, and ``cached`` keeps its values. Reordering for beam search makes tensors without a
    buffer, which are copied as by ``torch.cat``.
    """
    if torch.is_grad_enabled() and (cached.requires_grad or new.requires_grad):
        return torch.cat([cached, new], dim=2)
    start = cached.shape[2]
    end = start + new.shape[2]
    buffer = getattr(cached, _BUFFER, None)
    if buffer is None or not _can_take(buffer, start, end):
        batch, heads, _, size = cached.shape
        buffer = cached.new_empty(batch, heads, end + max(_ROOM, end // 2), size)
        buffer[:, :, :start] = cached
    buffer[:, :, start:end] = new
    setattr(buffer, _FILLED, end)
    result = buffer[:, :, :end]
    setattr(result, _BUFFER, buffer)
    return result


def _can_take(buffer: Tensor, start: int, end: int) -> bool:
    """Return True if tokens can be written to a buffer.

    They must follow the last written token and fit into the buffer. A tensor of inference mode can
    only be written in that mode.

    Args:
        buffer: (B, G, room, D).
        start, end: indices of the first token, and after the last.
    """
    is_writable = torch.is_inference_mode_enabled() or not buffer.is_inference()
    is_next = start == getattr(buffer, _FILLED)
    has_room = end <= buffer.shape[2]
    return is_writable and is_next and has_room
