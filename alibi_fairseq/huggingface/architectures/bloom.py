"""BLOOM (BigScience 2022): ALiBi behind a layer norm of the embeddings, with GELU.

Inference servers run it. Its bias is slope · key position in the type of the activations, so in
bf16 it is coarse beyond a few hundred tokens; that is BLOOM's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from transformers import BloomConfig

from ...errors import BadInput
from ..description import Description
from .base import (
    SPECIAL,
    Architecture,
    equal_widths,
    is_tied,
    norms,
    without_options,
)


class Bloom(Architecture):
    name, model_type, prefix = "BLOOM", "bloom", "transformer."
    fused = "h.{}.self_attention.query_key_value"
    names = {
        "embed_tokens": "word_embeddings",
        "layernorm_embedding": "word_embeddings_layernorm",
        "layers.{}.self_attn.out_proj": "h.{}.self_attention.dense",
        "layers.{}.self_attn_layer_norm": "h.{}.input_layernorm",
        "layers.{}.fc1": "h.{}.mlp.dense_h_to_4h",
        "layers.{}.fc2": "h.{}.mlp.dense_4h_to_h",
        "layers.{}.final_layer_norm": "h.{}.post_attention_layernorm",
        "layer_norm": "ln_f",
    }

    def needed(self, model: Description) -> Iterator[str]:
        yield from norms(model, embedding=True)
        if model.activation != "gelu_pytorch_tanh":
            yield "--activation-fn gelu_accurate"
        if model.inner != 4 * model.width:
            yield f"--decoder-ffn-embed-dim {4 * model.width}"
        yield from equal_widths(model)
        yield from without_options(model)

    def config(self, model: Description) -> BloomConfig:
        return BloomConfig(
            vocab_size=model.vocabulary,
            hidden_size=model.width,
            n_layer=model.layers,
            n_head=model.heads,
            hidden_dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            seq_length=model.train_length,
            tie_word_embeddings=is_tied(model),
            **SPECIAL,
        )

    def options(self, config: BloomConfig) -> dict[str, Any]:
        if config.apply_residual_connection_post_layernorm:
            raise BadInput(
                "This BLOOM model takes its residual connections behind the layer norms "
                "(apply_residual_connection_post_layernorm), which fairseq's decoder does not."
            )
        return {
            "position_method": "alibi",
            "decoder_embed_dim": config.hidden_size,
            "decoder_ffn_embed_dim": 4 * config.hidden_size,
            "decoder_layers": config.n_layer,
            "decoder_attention_heads": config.n_head,
            "activation_fn": "gelu_accurate",
            "layernorm_embedding": True,
            "tokens_per_sample": getattr(config, "seq_length", 2048),
        }
