"""Architectures of transformers that equal some of our models.

This file has those with the paper's block: BLOOM, OPT, XGLM, and GPT-NeoX. :mod:`.llama` has those
with the modern block.

An :class:`AlibiLmConfig` describes the models of both libraries. Here it is called a description,
and ``config`` is a configuration of transformers. Each architecture maps the fields of a
description and our names of weights to the names of transformers. Export and import use these maps
in opposite directions.

Shapes: C model width, H heads, D head size.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedConfig

from .configuration_alibi_lm import SPECIAL_TOKEN_IDS, AlibiLmConfig
from .unsupported import not_in_fairseq

#: fairseq's activation functions by transformers' names.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_accurate",
    "gelu_pytorch_tanh": "gelu_accurate",
    "tanh": "tanh",
    "linear": "linear",
}
#: Fields of :class:`AlibiLmConfig` that must have their defaults in all these architectures.
DEFAULT_ONLY_FIELDS = (
    "normalization",
    "gated_ffn",
    "linear_biases",
    "normalize_queries_keys",
    "embedding_bands",
    "softmax_bands",
    "alibi_scale",
    "alibi_bias_max",
    "clamp_learned_positions",
    "rotary_parameters",
    "sliding_window",
    "memory_length",
    "excluded_symbols",
)
#: Fields that have the same name in all these architectures.
COMMON_FIELDS = (
    "vocab_size",
    "hidden_size",
    "attention_dropout",
    "num_hidden_layers",
    "num_attention_heads",
)

Weights = dict[str, Tensor]


class Architecture:
    """Architecture of transformers.

    Attributes:
        name: name in messages and model cards.
        model_type: name in ``config.json``.
        prefix: prefix of the weights of all layers but the output layer.
        methods: position methods that it can have.
        fields: names of our configuration fields, beyond ``COMMON_FIELDS``.
        modules: names of our modules, where they differ; ``{}`` stands for the layer index.
        scales_embeddings: True if the model multiplies its embeddings by √C, as fairseq does.
    """

    name: str
    model_type: str
    prefix: str
    methods: tuple[str, ...]
    fields: dict[str, str]
    modules: dict[str, str] = {}
    scales_embeddings = False

    def required_fields(self, description: AlibiLmConfig) -> dict[str, Any]:
        """Return the fields whose values this architecture fixes, given the others.

        Most architectures have layer norms before each sublayer and at the end, and embeddings of
        the model width.
        """
        values: dict[str, Any] = {
            "normalize_before": True,
            "final_norm": True,
            "embedding_norm": False,
            "embedding_width": description.hidden_size,
            "output_width": description.hidden_size,
            "num_key_value_heads": description.num_attention_heads,
        }
        defaults = AlibiLmConfig()
        for field in DEFAULT_ONLY_FIELDS:
            values[field] = getattr(defaults, field)
        return values

    def position_method(self, config: PreTrainedConfig) -> str:
        """Return the position method of a model with this configuration."""
        return self.methods[0]

    def to_native_config(self, description: AlibiLmConfig, **options: Any) -> PreTrainedConfig:
        """Return the configuration of a described model.

        Args:
            description: the description, with the values that :meth:`required_fields` returns.
            options: more keys of the configuration.
        """
        values = dict(SPECIAL_TOKEN_IDS)
        for field, key in self.all_fields().items():
            values[key] = getattr(description, field)
        values.update(options)
        # Scaled embeddings are exported as scaled weights, which the output layer does not share.
        same_scale = self.scales_embeddings or description.embedding_scale == 1
        values["tie_word_embeddings"] = description.tie_word_embeddings and same_scale
        return AutoConfig.for_model(self.model_type, **values)

    def describe_config(self, config: PreTrainedConfig) -> AlibiLmConfig:
        """Describe the model of a configuration.

        Raises:
            UserInputError: if our decoder has no such model.
        """
        values: dict[str, Any] = {
            "train_length": 2048,
            "position_method": self.position_method(config),
        }
        for field, key in self.all_fields().items():
            # Some keys of a configuration are not fields of its class, and may be missing.
            value = getattr(config, key, None)
            if value is not None:
                values[field] = value
        description = AlibiLmConfig(**values)
        for field, value in self.required_fields(description).items():
            setattr(description, field, value)
        return description

    def all_fields(self) -> dict[str, str]:
        """Return transformers' names of our configuration fields, including ``COMMON_FIELDS``."""
        names = {field: field for field in COMMON_FIELDS}
        names.update(self.fields)
        return names

    def export_weights(self, description: AlibiLmConfig, weights: Weights) -> Weights:
        """Convert the weights of our decoder to weights with transformers' names."""
        ours = {
            name: weight for name, weight in weights.items() if name.endswith((".weight", ".bias"))
        }
        output = ours.pop("output_projection.weight")
        if not self.scales_embeddings:
            ours["embed_tokens.weight"] = ours["embed_tokens.weight"] * description.embedding_scale
        if "layers.{}.self_attn.qkv_proj" in self.modules:
            ours = fuse_projections(ours, description.num_attention_heads)
        native = {
            self.prefix + rename_weight(name, self.modules): weight for name, weight in ours.items()
        }
        native["lm_head.weight"] = output
        return native

    def import_weights(self, description: AlibiLmConfig, weights: Weights) -> Weights:
        """Convert weights with transformers' names to the weights of our decoder."""
        modules = {native_name: our_name for our_name, native_name in self.modules.items()}
        ours = {}
        for name, weight in weights.items():
            if name.startswith(self.prefix) and name.endswith((".weight", ".bias")):
                ours[rename_weight(name.removeprefix(self.prefix), modules)] = weight
        ours = separate_projections(ours, description.num_attention_heads)
        ours["output_projection.weight"] = weights["lm_head.weight"]
        return ours


def rename_weight(name: str, modules: dict[str, str]) -> str:
    """Return the name of a weight or bias after its module has been renamed.

    Args:
        modules: new names of modules; ``{}`` stands for the layer index in both.
    """
    module, _, kind = name.rpartition(".")
    layer = re.search(r"\.(\d+)\.", module)
    if layer is None:
        return f"{modules.get(module, module)}.{kind}"
    pattern = module.replace(layer[0], ".{}.")
    new_module = modules.get(pattern, pattern).format(layer[1])
    return f"{new_module}.{kind}"


def fuse_projections(weights: Weights, heads: int) -> Weights:
    """Join q_proj, k_proj, and v_proj of each layer to one qkv_proj, ordered by head."""
    result = dict(weights)
    for name in weights:
        if "q_proj" not in name:
            continue
        parts = []
        for part in "qkv":
            tensor = result.pop(name.replace("q_proj", f"{part}_proj"))
            parts.append(tensor.unflatten(0, (heads, -1)))  # (H, D, …)
        by_head = torch.stack(parts, dim=1)  # (H, 3, D, …)
        result[name.replace("q_proj", "qkv_proj")] = by_head.flatten(0, 2)
    return result


def separate_projections(weights: Weights, heads: int) -> Weights:
    """Reverse :func:`fuse_projections`."""
    result = dict(weights)
    for name in weights:
        if "qkv_proj" not in name:
            continue
        by_head = result.pop(name).unflatten(0, (heads, 3, -1))  # (H, 3, D, …)
        for part, tensor in zip("qkv", by_head.unbind(1)):
            joined_heads = tensor.flatten(0, 1).contiguous()
            result[name.replace("qkv_proj", f"{part}_proj")] = joined_heads
    return result


class Bloom(Architecture):
    """BLOOM: ALiBi, a layer norm of the embeddings, and GELU (BigScience 2022).

    Its bias is slope times key position in the data type of the activations. In bf16 it is coarse
    beyond a few hundred tokens.
    """

    name = "BLOOM"
    model_type = "bloom"
    methods = ("alibi",)
    prefix = "transformer."
    fields = {"train_length": "seq_length", "dropout": "hidden_dropout"}
    modules = {
        "embed_tokens": "word_embeddings",
        "layernorm_embedding": "word_embeddings_layernorm",
        "layers.{}.self_attn.qkv_proj": "h.{}.self_attention.query_key_value",
        "layers.{}.self_attn.out_proj": "h.{}.self_attention.dense",
        "layers.{}.self_attn_layer_norm": "h.{}.input_layernorm",
        "layers.{}.fc1": "h.{}.mlp.dense_h_to_4h",
        "layers.{}.fc2": "h.{}.mlp.dense_4h_to_h",
        "layers.{}.final_layer_norm": "h.{}.post_attention_layernorm",
        "layer_norm": "ln_f",
    }

    def required_fields(self, description: AlibiLmConfig) -> dict[str, Any]:
        values = super().required_fields(description)
        values["embedding_norm"] = True
        values["hidden_act"] = "gelu_pytorch_tanh"
        values["intermediate_size"] = 4 * description.hidden_size
        return values


class GptNeoX(Architecture):
    """GPT-NeoX without parallel residuals: rotary positions or none (Black et al. 2022)."""

    name = "GPT-NeoX"
    model_type = "gpt_neox"
    methods = ("rotary", "none")
    prefix = "gpt_neox."
    fields = {
        "intermediate_size": "intermediate_size",
        "hidden_act": "hidden_act",
        "train_length": "max_position_embeddings",
        "dropout": "hidden_dropout",
    }
    modules = {
        "embed_tokens": "embed_in",
        "layers.{}.self_attn.qkv_proj": "layers.{}.attention.query_key_value",
        "layers.{}.self_attn.out_proj": "layers.{}.attention.dense",
        "layers.{}.self_attn_layer_norm": "layers.{}.input_layernorm",
        "layers.{}.fc1": "layers.{}.mlp.dense_h_to_4h",
        "layers.{}.fc2": "layers.{}.mlp.dense_4h_to_h",
        "layers.{}.final_layer_norm": "layers.{}.post_attention_layernorm",
        "layer_norm": "final_layer_norm",
    }

    def required_fields(self, description: AlibiLmConfig) -> dict[str, Any]:
        values = super().required_fields(description)
        values["rotary_parameters"] = description.rotary_parameters  # any are supported
        return values

    def position_method(self, config: PreTrainedConfig) -> str:
        if config.rope_parameters.get("partial_rotary_factor") == 0:
            return "none"
        return "rotary"

    def to_native_config(self, description: AlibiLmConfig, **options: Any) -> PreTrainedConfig:
        if description.rotary_parameters is None:
            options["rotary_pct"] = 1.0 if description.position_method == "rotary" else 0.0
        else:
            options["rope_parameters"] = dict(description.rotary_parameters)
        return super().to_native_config(description, use_parallel_residual=False, **options)

    def describe_config(self, config: PreTrainedConfig) -> AlibiLmConfig:
        if config.use_parallel_residual:
            raise not_in_fairseq("use_parallel_residual = True")
        if not config.attention_bias:
            raise not_in_fairseq("attention_bias = False")
        description = super().describe_config(config)
        if description.position_method == "rotary":
            description.rotary_parameters = dict(config.rope_parameters)
        return description


class Opt(Architecture):
    """OPT: learned positions (Zhang et al. 2022).

    OPT was trained with fairseq, so most names are equal.
    """

    name = "OPT"
    model_type = "opt"
    methods = ("learned",)
    prefix = "model.decoder."
    fields = {
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "normalize_before": "do_layer_norm_before",
        "embedding_width": "word_embed_proj_dim",
        "train_length": "max_position_embeddings",
        "dropout": "dropout",
    }
    modules = {
        "project_in_dim": "project_in",
        "project_out_dim": "project_out",
        "layer_norm": "final_layer_norm",
    }

    def required_fields(self, description: AlibiLmConfig) -> dict[str, Any]:
        values = super().required_fields(description)
        values["normalize_before"] = description.normalize_before
        values["final_norm"] = description.final_norm
        values["embedding_width"] = description.embedding_width
        values["output_width"] = description.embedding_width
        return values

    def to_native_config(self, description: AlibiLmConfig, **options: Any) -> PreTrainedConfig:
        return super().to_native_config(
            description, _remove_final_layer_norm=not description.final_norm, **options
        )

    def describe_config(self, config: PreTrainedConfig) -> AlibiLmConfig:
        for key in ("enable_bias", "layer_norm_elementwise_affine"):
            if not getattr(config, key):
                raise not_in_fairseq(f"{key} = False")
        description = super().describe_config(config)
        description.final_norm = not config._remove_final_layer_norm
        return description


class Xglm(Architecture):
    """XGLM: fairseq's sinusoidal positions and embeddings scaled by √C (Lin et al. 2021)."""

    name = "XGLM"
    model_type = "xglm"
    methods = ("sinusoidal",)
    prefix = "model."
    fields = {
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "train_length": "max_position_embeddings",
        "dropout": "dropout",
        "activation_dropout": "activation_dropout",
    }
    scales_embeddings = True

    def to_native_config(self, description: AlibiLmConfig, **options: Any) -> PreTrainedConfig:
        return super().to_native_config(
            description, scale_embedding=description.embedding_scale != 1, **options
        )

    def describe_config(self, config: PreTrainedConfig) -> AlibiLmConfig:
        description = super().describe_config(config)
        description.embedding_scale = 1.0
        if config.scale_embedding:
            description.embedding_scale = math.sqrt(config.d_model)
        return description
