"""Forward passes of the attention modules of BLOOM, MPT, and Falcon in linear memory.

These modules of transformers add ALiBi themselves and ignore ``AttentionInterface``. Each function
below returns the output, (B, T, C), and the attention weights or None. Its ``attention_mask`` is
the result of :func:`.attention.padded_keys`.

The functions name all arguments that the supported versions of transformers pass, even unused ones,
and accept no others. A version that renames one, such as the KV cache, is then an error. Ignoring
it would silently give wrong outputs.

Shapes: B batch, H heads, T queries, S keys, D head size, C model width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from torch import nn
from transformers.models.bloom.modeling_bloom import BloomAttention, dropout_add
from transformers.models.falcon.modeling_falcon import FALCON_ATTENTION_CLASSES, FalconAttention
from transformers.models.mpt.modeling_mpt import MptAttention

from ..positions.alibi import LinearBias, alibi_slopes
from .biased_attention import attend_with_bias


def replace_attention(name: str) -> None:
    """Replace the forward passes for models with the attention implementation ``name``."""
    _replace_forward(BloomAttention, bloom_forward)
    _replace_forward(MptAttention, mpt_forward)
    _replace_forward(FalconAttention, falcon_forward)
    FALCON_ATTENTION_CLASSES[name] = FalconAttention


def _replace_forward(attention_class: type[nn.Module], forward: Callable) -> None:
    """Replace ``forward`` for calls whose mask is padding, (B, S), and not (B, 1, T, S)."""
    original = attention_class.forward

    @functools.wraps(original)
    def select(self, *arguments, attention_mask, **keywords):
        has_padding_mask = attention_mask is not None and attention_mask.dim() == 2
        selected = forward if has_padding_mask else original
        return selected(self, *arguments, attention_mask=attention_mask, **keywords)

    attention_class.forward = select


def bloom_forward(
    self,
    hidden_states,
    residual,
    alibi,
    attention_mask,
    layer_past=None,
    use_cache=False,
    output_attentions=False,
):
    """Compute the attention of BLOOM, with the residual connection."""
    query, key, value = self._reshape(self.query_key_value(hidden_states))  # (B, H, T, D)
    if layer_past is not None:
        key, value = layer_past.update(key, value, self.layer_idx)  # (B, H, S, D)
    output, weights = attend_with_bias(
        query,
        key,
        value,
        LinearBias(self.num_heads),
        attention_mask,
        dropout=self.attention_dropout.p if self.training else 0.0,
        need_weights=output_attentions,
    )
    output = self.dense(output.flatten(2))
    return dropout_add(output, residual, self.hidden_dropout, self.training), weights


def mpt_forward(
    self, hidden_states, position_bias, attention_mask, cache=None, past_key_values=None
):
    """Compute the attention of MPT.

    The KV cache is ``cache`` since transformers 5.24, and ``past_key_values`` before.

    transformers returns attention weights in every call. They need quadratic memory, so this
    function never does.
    """
    if cache is None:
        cache = past_key_values
    query_key_value = self.Wqkv(hidden_states)  # (B, T, 3C)
    if self.clip_qkv:
        query_key_value = query_key_value.clamp(-self.clip_qkv, self.clip_qkv)
    split = query_key_value.unflatten(2, (3, self.n_heads, self.head_dim))
    query, key, value = split.permute(2, 0, 3, 1, 4)  # (B, H, T, D)
    if cache is not None:
        key, value = cache.update(key, value, self.layer_idx)  # (B, H, S, D)
    output, weights = attend_with_bias(
        query,
        key,
        value,
        LinearBias(self.n_heads),
        attention_mask,
        dropout=self.attn_dropout_p if self.training else 0.0,
        scaling=self.softmax_scale,
    )
    return self.out_proj(output.flatten(2)), weights


def falcon_forward(
    self,
    hidden_states,
    alibi,
    attention_mask,
    position_ids=None,
    layer_past=None,
    use_cache=False,
    output_attentions=False,
    position_embeddings=None,
):
    """Compute the attention of Falcon with ALiBi."""
    # (B, T, H, D) queries; there may be fewer heads of keys and values.
    heads_last = self._split_heads(self.query_key_value(hidden_states))
    query, key, value = (states.transpose(1, 2) for states in heads_last)
    if layer_past is not None:
        key, value = layer_past.update(key, value, self.layer_idx)  # (B, H or fewer, S, D)
    output, weights = attend_with_bias(
        query,
        key,
        value,
        falcon_bias(self.num_heads, self.head_dim),
        attention_mask,
        dropout=self.attention_dropout.p if self.training else 0.0,
        need_weights=output_attentions,
    )
    return self.dense(output.flatten(2)), weights


@functools.cache
def falcon_bias(heads: int, head_dim: int) -> LinearBias:
    """Return the bias of Falcon, which has slopes in bf16 and divides them by √D."""
    slopes = alibi_slopes(heads).bfloat16().double() / math.sqrt(head_dim)
    return LinearBias(heads, given=tuple(slopes.tolist()))
