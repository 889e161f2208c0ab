"""fairseq's decoder layer with our attention and an optional memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from .attention import AttentionContext, SelfAttention


class DecoderLayer(TransformerDecoderLayerBase):
    """Equal to fairseq's layer apart from the attention."""

    def __init__(self, cfg, no_encoder_attn=False):
        super().__init__(cfg, no_encoder_attn)
        self.is_compiled = cfg.compile

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        return SelfAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def forward(self, x: Tensor, *args, self_attn_mask: AttentionContext, **kwargs):
        """As fairseq's; ``self_attn_mask`` carries the context of this forward pass.

        Remembered states are inputs of this layer, so its layer norm applies to them as well.
        """
        if self_attn_mask.memory is not None and self.normalize_before:
            memory = self.self_attn_layer_norm(self_attn_mask.memory)
            self_attn_mask = replace(self_attn_mask, memory=memory)
        run = (
            compiled()
            if self.is_compiled and self.training
            else TransformerDecoderLayerBase.forward
        )
        return run(self, x, *args, self_attn_mask=self_attn_mask, **kwargs)


@functools.cache
def compiled() -> Callable:
    """fairseq's forward pass of a layer, for all layers and lengths at once.

    Dropout draws the numbers that it draws without compilation.
    """
    return torch.compile(
        TransformerDecoderLayerBase.forward, dynamic=True, options={"fallback_random": True}
    )
