"""GPT-NeoX (Black et al. 2022) without parallel residuals: rotary positions, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import GPTNeoXConfig

from ...errors import BadInput
from ..description import Description
from .base import (
    SPECIAL,
    Architecture,
    equal_widths,
    fairseq_activation,
    is_tied,
    norms,
    without_options,
)


class GptNeoX(Architecture):
    name, model_type, prefix = "GPT-NeoX", "gpt_neox", "gpt_neox."
    fused = "layers.{}.attention.query_key_value"
    names = {
        "embed_tokens": "embed_in",
        "layers.{}.self_attn.out_proj": "layers.{}.attention.dense",
        "layers.{}.self_attn_layer_norm": "layers.{}.input_layernorm",
        "layers.{}.fc1": "layers.{}.mlp.dense_h_to_4h",
        "layers.{}.fc2": "layers.{}.mlp.dense_4h_to_h",
        "layers.{}.final_layer_norm": "layers.{}.post_attention_layernorm",
        "layer_norm": "final_layer_norm",
    }

    def needed(self, model: Description) -> Iterator[str]:
        yield from norms(model)
        yield from equal_widths(model)
        yield from without_options(model)

    def config(self, model: Description) -> GPTNeoXConfig:
        return GPTNeoXConfig(
            vocab_size=model.vocabulary,
            hidden_size=model.width,
            intermediate_size=model.inner,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            hidden_act=model.activation,
            rotary_pct=1.0 if model.position_method == "rotary" else 0.0,
            use_parallel_residual=False,
            max_position_embeddings=model.train_length,
            hidden_dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            tie_word_embeddings=is_tied(model),
            **SPECIAL,
        )

    def options(self, config: GPTNeoXConfig) -> dict[str, Any]:
        rotary = config.rope_parameters
        share = rotary.get("partial_rotary_factor", 1.0)
        for differs, what in (
            (config.use_parallel_residual, "parallel residual connections"),
            (share not in (0.0, 1.0), f"rotary positions on {share:.0%} of each head"),
            (rotary["rope_type"] != "default", f"rotary positions of type {rotary['rope_type']}"),
            (share and rotary["rope_theta"] != 10000, f"rotary base {rotary['rope_theta']}"),
            (not config.attention_bias, "no biases in its attention"),
        ):
            if differs:
                raise BadInput(f"This GPT-NeoX model has {what}, which our decoder does not have.")
        return {
            "position_method": "rotary" if share else "none",
            "decoder_embed_dim": config.hidden_size,
            "decoder_ffn_embed_dim": config.intermediate_size,
            "decoder_layers": config.num_hidden_layers,
            "decoder_attention_heads": config.num_attention_heads,
            "activation_fn": fairseq_activation(self.name, config.hidden_act),
            "tokens_per_sample": config.max_position_embeddings,
        }
