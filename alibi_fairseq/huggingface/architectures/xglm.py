"""XGLM (Lin et al. 2021): sinusoidal positions with fairseq's values, embeddings scaled by √C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import XGLMConfig

from ..description import Description
from .base import (
    SPECIAL,
    Architecture,
    equal_widths,
    fairseq_activation,
    norms,
    without_options,
)


class Xglm(Architecture):
    name, model_type, prefix = "XGLM", "xglm", "model."
    scales = True
    names = {
        name: name
        for name in (
            "embed_tokens",
            "layers.{}.self_attn.q_proj",
            "layers.{}.self_attn.k_proj",
            "layers.{}.self_attn.v_proj",
            "layers.{}.self_attn.out_proj",
            "layers.{}.self_attn_layer_norm",
            "layers.{}.fc1",
            "layers.{}.fc2",
            "layers.{}.final_layer_norm",
            "layer_norm",
        )
    }

    def needed(self, model: Description) -> Iterator[str]:
        yield from norms(model)
        yield from equal_widths(model)
        yield from without_options(model)

    def config(self, model: Description) -> XGLMConfig:
        return XGLMConfig(
            vocab_size=model.vocabulary,
            d_model=model.width,
            ffn_dim=model.inner,
            num_layers=model.layers,
            attention_heads=model.heads,
            activation_function=model.activation,
            max_position_embeddings=model.train_length,
            scale_embedding=model.embedding_scale != 1,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            activation_dropout=model.activation_dropout,
            tie_word_embeddings=model.tied,
            **SPECIAL,
        )

    def options(self, config: XGLMConfig) -> dict[str, Any]:
        return {
            "position_method": "sinusoidal",
            "decoder_embed_dim": config.d_model,
            "decoder_ffn_embed_dim": config.ffn_dim,
            "decoder_layers": config.num_layers,
            "decoder_attention_heads": config.attention_heads,
            "activation_fn": fairseq_activation(self.name, config.activation_function),
            "no_scale_embedding": not config.scale_embedding,
            "tokens_per_sample": config.max_position_embeddings,
        }
