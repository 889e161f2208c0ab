"""Transformer blocks in plain PyTorch, with any position method and without fairseq."""

from __future__ import annotations

from .causal_attention import CausalAttention
from .feed_forward import FEED_FORWARDS, swiglu
from .normalization import NORMALIZATIONS
from .options import BlockOptions
from .transformer_block import TransformerBlock, embed_positions

__all__ = [
    "FEED_FORWARDS",
    "NORMALIZATIONS",
    "BlockOptions",
    "CausalAttention",
    "TransformerBlock",
    "embed_positions",
    "swiglu",
]
