"""Architectures of transformers that hold some of our models exactly: BLOOM, OPT, XGLM, GPT-NeoX.

What a model is, an :class:`AlibiLmConfig` says, whichever library it comes from. An architecture is
a table of its own names for these fields and for the weights, read in one direction to export and in
the other to import.

Shapes: C model width, H heads, D head size.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, GPTNeoXForCausalLM, PreTrainedConfig

from ..errors import UserInputError
from .configuration_alibi_lm import SYMBOLS, AlibiLmConfig

#: fairseq's activation functions by transformers' names.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_accurate",
    "gelu_pytorch_tanh": "gelu_accurate",
    "tanh": "tanh",
    "linear": "linear",
}
#: Fields of :class:`AlibiLmConfig` that only our own files hold, unless they have their defaults.
OWN = (
    *("embedding_bands", "softmax_bands", "alibi_scale", "alibi_bias_max"),
    *("clamp_learned_positions", "rotary_parameters", "sliding_window", "memory_length"),
    "excluded_symbols",
)
#: Fields that all of them have under the same name.
COMMON = (
    *("vocab_size", "hidden_size", "attention_dropout"),
    *("num_hidden_layers", "num_attention_heads"),
)

Weights = dict[str, Tensor]


class Architecture:
    """One architecture of transformers."""

    name: str
    model_type: str
    prefix: str  # of the transformer's weights in a causal language model
    method: str  # its position method, where it has only one
    fields: dict[str, str]  # its names of our fields, where they differ or others lack them
    modules: dict[str, str] = {}  # its names of our modules, where they differ; {} is a layer
    output_weight = "lm_head.weight"
    scales = False  # it multiplies embeddings by √C itself, as fairseq does

    def required(self, model: AlibiLmConfig) -> dict[str, Any]:
        """What a model of this architecture always is, given what it may choose.

        Most have layer norms in front of each sublayer and at the end, and embeddings as wide as
        the model.
        """
        return {
            "normalize_before": True,
            "final_norm": True,
            "embedding_norm": False,
            "embedding_width": model.hidden_size,
            "output_width": model.hidden_size,
            **{field: getattr(AlibiLmConfig(), field) for field in OWN},
        }

    def position_method(self, config: PreTrainedConfig) -> str:
        return self.method

    def config(self, model: AlibiLmConfig, **more: Any) -> PreTrainedConfig:
        """The configuration of a model that fits."""
        tied = model.tie_word_embeddings and (self.scales or model.embedding_scale == 1)
        values = {theirs: getattr(model, ours) for ours, theirs in self.all_fields().items()}
        values |= {**SYMBOLS, **more, "tie_word_embeddings": tied}
        return AutoConfig.for_model(self.model_type, **values)

    def read(self, config: PreTrainedConfig) -> AlibiLmConfig:
        """A model of that configuration.

        Raises:
            UserInputError: our decoder has no such model.
        """
        # Some keys of a configuration are not fields of its class, and may be missing.
        values = {ours: getattr(config, theirs, None) for ours, theirs in self.all_fields().items()}
        values = {ours: value for ours, value in values.items() if value is not None}
        method = self.position_method(config)
        model = AlibiLmConfig(**{"train_length": 2048, "position_method": method, **values})
        for field, value in self.required(model).items():
            setattr(model, field, value)
        return model

    def all_fields(self) -> dict[str, str]:
        return {**dict(zip(COMMON, COMMON)), **self.fields}

    def exported(self, model: AlibiLmConfig, weights: Weights) -> Weights:
        """Weights by transformers' names, from those of our decoder."""
        ours = {name: w for name, w in weights.items() if name.endswith((".weight", ".bias"))}
        output = ours.pop("output_projection.weight")
        if not self.scales:
            ours["embed_tokens.weight"] = ours["embed_tokens.weight"] * model.embedding_scale
        if "layers.{}.self_attn.qkv_proj" in self.modules:
            ours = fused(ours, model.num_attention_heads)
        theirs = {self.prefix + renamed(name, self.modules): w for name, w in ours.items()}
        return {**theirs, self.output_weight: output}

    def imported(self, model: AlibiLmConfig, weights: Weights) -> Weights:
        """Weights by our decoder's names, from transformers'."""
        modules = {theirs: ours for ours, theirs in self.modules.items()}
        ours = {
            renamed(name.removeprefix(self.prefix), modules): w
            for name, w in weights.items()
            if name.startswith(self.prefix) and name.endswith((".weight", ".bias"))
        }
        ours = separated(ours, model.num_attention_heads)
        return {**ours, "output_projection.weight": weights[self.output_weight]}


def renamed(name: str, modules: dict[str, str]) -> str:
    """The name of a weight or bias after its module has been renamed."""
    module, _, kind = name.rpartition(".")
    layer = re.search(r"\.(\d+)\.", module)
    if layer:
        module = module.replace(layer[0], ".{}.")
    return f"{modules.get(module, module).format(layer and layer[1])}.{kind}"


def fused(weights: Weights, heads: int) -> Weights:
    """q_proj, k_proj and v_proj of each layer as one qkv_proj: those of each head one by one."""
    result = dict(weights)
    for name in weights:
        if "q_proj" in name:
            parts = (result.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv")
            by_head = torch.stack([part.unflatten(0, (heads, -1)) for part in parts], 1)
            result[name.replace("q_proj", "qkv_proj")] = by_head.flatten(0, 2)
    return result


def separated(weights: Weights, heads: int) -> Weights:
    """The reverse of :func:`fused`."""
    result = dict(weights)
    for name in weights:
        if "qkv_proj" in name:
            by_head = result.pop(name).unflatten(0, (heads, 3, -1))  # (H, 3, D, …)
            for part, tensor in zip("qkv", by_head.unbind(1)):
                one = tensor.flatten(0, 1).contiguous()
                result[name.replace("qkv_proj", f"{part}_proj")] = one
    return result


class Bloom(Architecture):
    """BigScience 2022: ALiBi behind a layer norm of the embeddings, with GELU.

    Inference servers run it. Its bias is slope · key position in the type of the activations, so in
    bf16 it is coarse beyond a few hundred tokens; that is BLOOM's own arithmetic.
    """

    name, model_type, method, prefix = "BLOOM", "bloom", "alibi", "transformer."
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

    def required(self, model: AlibiLmConfig) -> dict[str, Any]:
        return {
            **super().required(model),
            "embedding_norm": True,
            "hidden_act": "gelu_pytorch_tanh",
            "intermediate_size": 4 * model.hidden_size,
        }


class GptNeoX(Architecture):
    """Black et al. 2022, without parallel residuals: rotary positions, or none."""

    name, model_type, prefix = "GPT-NeoX", "gpt_neox", "gpt_neox."
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
    # embed_out.weight up to transformers 5.10, lm_head.weight since 5.23.
    (output_weight,) = GPTNeoXForCausalLM._tied_weights_keys

    def required(self, model: AlibiLmConfig) -> dict[str, Any]:
        return {**super().required(model), "rotary_parameters": model.rotary_parameters}

    def position_method(self, config: PreTrainedConfig) -> str:
        return "none" if config.rope_parameters.get("partial_rotary_factor") == 0 else "rotary"

    def config(self, model: AlibiLmConfig, **more: Any) -> PreTrainedConfig:
        if model.rotary_parameters is None:
            more["rotary_pct"] = float(model.position_method == "rotary")
        else:
            more["rope_parameters"] = dict(model.rotary_parameters)
        return super().config(model, use_parallel_residual=False, **more)

    def read(self, config: PreTrainedConfig) -> AlibiLmConfig:
        if config.use_parallel_residual:
            raise UserInputError(
                f"This {self.name} model has use_parallel_residual = True; our decoder has only False."
            )
        model = super().read(config)
        if model.position_method == "rotary":
            model.rotary_parameters = dict(config.rope_parameters)
        return model


class Opt(Architecture):
    """Zhang et al. 2022: learned positions. It came from fairseq, so most names are the same."""

    name, model_type, method, prefix = "OPT", "opt", "learned", "model.decoder."
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

    def required(self, model: AlibiLmConfig) -> dict[str, Any]:
        chosen = {field: getattr(model, field) for field in ("normalize_before", "final_norm")}
        widths = dict.fromkeys(("embedding_width", "output_width"), model.embedding_width)
        return {**super().required(model), **chosen, **widths}

    def config(self, model: AlibiLmConfig, **more: Any) -> PreTrainedConfig:
        return super().config(model, _remove_final_layer_norm=not model.final_norm, **more)

    def read(self, config: PreTrainedConfig) -> AlibiLmConfig:
        model = super().read(config)
        model.final_norm = not config._remove_final_layer_norm
        return model


class Xglm(Architecture):
    """Lin et al. 2021: sinusoidal positions with fairseq's values, embeddings scaled by √C."""

    name, model_type, method, prefix = "XGLM", "xglm", "sinusoidal", "model."
    fields = {
        "intermediate_size": "ffn_dim",
        "hidden_act": "activation_function",
        "train_length": "max_position_embeddings",
        "dropout": "dropout",
        "activation_dropout": "activation_dropout",
    }
    scales = True

    def config(self, model: AlibiLmConfig, **more: Any) -> PreTrainedConfig:
        return super().config(model, scale_embedding=model.embedding_scale != 1, **more)

    def read(self, config: PreTrainedConfig) -> AlibiLmConfig:
        model = super().read(config)
        model.embedding_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        return model


#: The architecture that each position method can be exported to without code of ours.
NATIVE: dict[str, Architecture] = {
    "alibi": Bloom(),
    "learned": Opt(),
    "sinusoidal": Xglm(),
    "rotary": GptNeoX(),
    "none": GptNeoX(),
}
