"""Architectures of transformers with the modern block and rotary positions: Llama and Qwen3.

Both rotate the pairs of features (i, i + D/2), as our decoder does. (Meta's original checkpoints of
Llama rotate neighbors; their conversion to transformers permutes the weights.) Neither has dropout
other than that of the attention weights.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import PreTrainedConfig

from ..positions.rotary_frequencies import BASE
from .architectures import Architecture, Weights
from .configuration_alibi_lm import AlibiLmConfig
from .unsupported import not_in_fairseq


class Llama(Architecture):
    """Llama: RMSNorm, SwiGLU, grouped-query attention, and no biases (Touvron et al. 2023)."""

    name = "Llama"
    model_type = "llama"
    methods = ("rotary",)
    prefix = "model."
    fields = {
        "intermediate_size": "intermediate_size",
        "num_key_value_heads": "num_key_value_heads",
        "rms_norm_eps": "rms_norm_eps",
        "train_length": "max_position_embeddings",
    }
    modules = {
        "layers.{}.self_attn.out_proj": "layers.{}.self_attn.o_proj",
        "layers.{}.self_attn_layer_norm": "layers.{}.input_layernorm",
        "layers.{}.gate": "layers.{}.mlp.gate_proj",
        "layers.{}.up": "layers.{}.mlp.up_proj",
        "layers.{}.fc2": "layers.{}.mlp.down_proj",
        "layers.{}.final_layer_norm": "layers.{}.post_attention_layernorm",
        "layer_norm": "norm",
    }
    normalize_queries_keys = False

    def required_fields(self, description: AlibiLmConfig) -> dict[str, Any]:
        values = super().required_fields(description)
        values["normalization"] = "rms"
        values["gated_ffn"] = True
        values["hidden_act"] = "silu"
        values["linear_biases"] = False
        values["normalize_queries_keys"] = self.normalize_queries_keys
        values["num_key_value_heads"] = description.num_key_value_heads
        rotation = description.rotary_parameters
        if rotates_all_features(rotation or {}):
            values["rotary_parameters"] = rotation
        return values

    def to_native_config(self, description: AlibiLmConfig, **options: Any) -> PreTrainedConfig:
        rotation = description.rotary_parameters or {"rope_type": "default", "rope_theta": BASE}
        options["rope_parameters"] = dict(rotation)
        options["head_dim"] = description.head_dim
        return super().to_native_config(description, **options)

    def describe_config(self, config: PreTrainedConfig) -> AlibiLmConfig:
        head_dim = config.hidden_size // config.num_attention_heads
        expected = {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "use_sliding_window": False,
            "head_dim": head_dim,
        }
        for key, value in expected.items():
            given = getattr(config, key, value)
            if given != value:
                raise not_in_fairseq(f"{key} = {given}")
        description = super().describe_config(config)
        description.rotary_parameters = dict(config.rope_parameters)
        return description

    def export_weights(self, description: AlibiLmConfig, weights: Weights) -> Weights:
        separate: Weights = {}
        for name, weight in weights.items():
            if name.endswith(".fc1.weight"):
                gate, up = weight.chunk(2)  # (F, C) each
                separate[name.replace("fc1", "gate")] = gate
                separate[name.replace("fc1", "up")] = up
            else:
                separate[name] = weight
        return super().export_weights(description, separate)

    def import_weights(self, description: AlibiLmConfig, weights: Weights) -> Weights:
        ours = super().import_weights(description, weights)
        for layer in range(description.num_hidden_layers):
            gate = ours.pop(f"layers.{layer}.gate.weight")
            up = ours.pop(f"layers.{layer}.up.weight")
            ours[f"layers.{layer}.fc1.weight"] = torch.cat([gate, up])  # (2·F, C)
        return ours


class Qwen3(Llama):
    """Qwen3: Llama with an RMSNorm of each query and key head (Yang et al. 2025)."""

    name = "Qwen3"
    model_type = "qwen3"
    normalize_queries_keys = True


def rotates_all_features(rotation: dict[str, Any]) -> bool:
    """Return True if no feature is left out, which Llama does not support.

    With the type ``proportional``, some frequencies are zero instead.
    """
    is_proportional = rotation.get("rope_type") == "proportional"
    return is_proportional or rotation.get("partial_rotary_factor", 1.0) == 1
