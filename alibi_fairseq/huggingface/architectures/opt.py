"""OPT (Zhang et al. 2022): learned positions. It came from fairseq, so the names are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import OPTConfig

from ...errors import BadInput
from ..description import Description
from .base import (
    SPECIAL,
    Architecture,
    fairseq_activation,
    is_tied,
    plain_vocabulary,
    without_options,
)


class Opt(Architecture):
    name, model_type, prefix = "OPT", "opt", "model.decoder."
    names = {
        "embed_tokens": "embed_tokens",
        "embed_positions": "embed_positions",
        "project_in_dim": "project_in",
        "project_out_dim": "project_out",
        "layers.{}.self_attn.q_proj": "layers.{}.self_attn.q_proj",
        "layers.{}.self_attn.k_proj": "layers.{}.self_attn.k_proj",
        "layers.{}.self_attn.v_proj": "layers.{}.self_attn.v_proj",
        "layers.{}.self_attn.out_proj": "layers.{}.self_attn.out_proj",
        "layers.{}.self_attn_layer_norm": "layers.{}.self_attn_layer_norm",
        "layers.{}.fc1": "layers.{}.fc1",
        "layers.{}.fc2": "layers.{}.fc2",
        "layers.{}.final_layer_norm": "layers.{}.final_layer_norm",
        "layer_norm": "final_layer_norm",
    }

    def needed(self, model: Description) -> Iterator[str]:
        yield from plain_vocabulary(model)
        if model.embedding_norm:
            yield "without --layernorm-embedding"
        if model.input_width != model.output_width and not model.adaptive_input:
            yield f"--decoder-output-dim {model.input_width}"
        yield from without_options(model)

    def config(self, model: Description) -> OPTConfig:
        return OPTConfig(
            vocab_size=model.vocabulary,
            hidden_size=model.width,
            ffn_dim=model.inner,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            activation_function=model.activation,
            max_position_embeddings=model.train_length,
            do_layer_norm_before=model.normalize_before,
            _remove_final_layer_norm=not model.final_norm,
            word_embed_proj_dim=model.input_width,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            tie_word_embeddings=is_tied(model),
            **SPECIAL,
        )

    def options(self, config: OPTConfig) -> dict[str, Any]:
        if not (config.enable_bias and config.layer_norm_elementwise_affine):
            raise BadInput(
                "This OPT model has no biases or no weights in its layer norms (enable_bias, "
                "layer_norm_elementwise_affine); our decoder always has both."
            )
        return {
            "position_method": "learned",
            "decoder_embed_dim": config.hidden_size,
            "decoder_input_dim": config.word_embed_proj_dim,
            "decoder_output_dim": config.word_embed_proj_dim,
            "decoder_ffn_embed_dim": config.ffn_dim,
            "decoder_layers": config.num_hidden_layers,
            "decoder_attention_heads": config.num_attention_heads,
            "decoder_normalize_before": config.do_layer_norm_before,
            "no_decoder_final_norm": config._remove_final_layer_norm,
            "activation_fn": fairseq_activation(self.name, config.activation_function),
            "tokens_per_sample": config.max_position_embeddings,
        }
