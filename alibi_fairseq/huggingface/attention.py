"""Attention with ALiBi in linear memory for models of transformers.

After ``register()``, ``from_pretrained(folder, attn_implementation="alibi_fairseq")`` computes the
attention of BLOOM, MPT, Falcon with ALiBi, and models without positions with the backends of
:mod:`alibi_fairseq.attention`. Models without positions get ALiBi with the paper's slopes through
transformers' ``AttentionInterface``. The attention modules of the other three do not use that
interface, so :mod:`.alibi_models` replaces their forward passes.

Shapes: B batch, H heads, T queries, S keys.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import causal_mask_function

from ..positions.alibi import LinearBias
from .alibi_models import replace_attention
from .biased_attention import attend_with_bias

#: Value of ``attn_implementation``.
NAME = "alibi_fairseq"


@functools.cache
def register() -> None:
    """Make ``attn_implementation="alibi_fairseq"`` available to models of transformers.

    Call it before the model is loaded.
    """
    AttentionInterface.register(NAME, attend_without_positions)
    AttentionMaskInterface.register(NAME, padded_keys)
    replace_attention(NAME)


def attend_without_positions(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **options,
) -> tuple[Tensor, Tensor | None]:
    """Compute attention with the paper's slopes, as a function of ``AttentionInterface``.

    It has the arguments and results of :func:`.biased_attention.attend_with_bias`, whose
    ``padding`` is ``attention_mask``.

    Raises:
        ValueError: if the model has a score bias of its own, ``position_bias``.
    """
    if position_bias is not None:
        raise _has_positions(module.config, "a position bias")
    bias = LinearBias(query.shape[1])
    need_weights = bool(options.get("output_attentions"))
    return attend_with_bias(query, key, value, bias, attention_mask, dropout, scaling, need_weights)


def padded_keys(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor,
    mask_function,
    attention_mask: Tensor | None,
    config,
    device: torch.device,
    **_,
) -> Tensor:
    """Return the padding of a forward pass, as a function of ``AttentionMaskInterface``.

    Args:
        batch_size: B.
        q_length, kv_length: T and S.
        q_offset: position of the first query.
        mask_function: transformers' description of the mask, without padding.
        attention_mask: (B, S) bool, False at padding, or None.
        config: configuration of the model.
        device: device of the mask.

    Returns:
        (B, S) bool, True at padding, or (B, 0) if there is no padding.

    Raises:
        ValueError: if the model has rotary positions or is an exported model with any positions, or
            if the mask is not causal attention to all keys but padding on one side.
    """
    if has_rotary_positions(config):
        raise _has_positions(config, "rotary positions")
    if config.model_type == "alibi_lm" and config.position_method != "none":
        raise _has_positions(config, f"{config.position_method} positions")
    if mask_function is not causal_mask_function or q_offset + q_length != kv_length:
        raise _unsupported_mask()
    if attention_mask is None or attention_mask.all():
        return torch.zeros(batch_size, 0, dtype=torch.bool, device=device)
    real_before = attention_mask.cummax(1).values
    real_after = attention_mask.flip(1).cummax(1).values.flip(1)
    if (real_before & real_after & ~attention_mask).any():
        raise _unsupported_mask()
    return ~attention_mask


def _has_positions(config, positions: str) -> ValueError:
    """Return the error for a model that would have two position methods."""
    return ValueError(
        f"attn_implementation='{NAME}' adds ALiBi, and this model of type '{config.model_type}' "
        f"has {positions}. Use another attention implementation."
    )


def _unsupported_mask() -> ValueError:
    """Return the error for a mask in which distances differ from ALiBi's."""
    return ValueError(
        f"attn_implementation='{NAME}' supports one sequence per row, padded on one side, with a "
        "DynamicCache: no sliding windows, rows packed with several sequences, padding between "
        "tokens, or static caches."
    )


def has_rotary_positions(config) -> bool:
    """Return True if a configuration of transformers describes rotary positions."""
    rotary = getattr(config, "rope_parameters", None)
    if not rotary or getattr(config, "alibi", False):  # Falcon has either
        return False
    return rotary.get("partial_rotary_factor", 1.0) > 0
