"""A decoder as a model of transformers: natively where that is exact, else by our own files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..errors import BadInput
from .architectures import NATIVE
from .architectures.base import SPECIAL, Weights
from .configuration_alibi_lm import AlibiLmConfig
from .description import Description, softmax_parts
from .modeling_alibi_lm import AlibiLmForCausalLM
from .positions_alibi_lm import POSITIONS

NAME = "alibi_lm"
#: Options of position methods, and limits of attention, that the modelling files know.
OWN_OPTIONS = (
    *("mem_len", "alibi_scale", "alibi_bias_max", "clamp_learned_positions"),
    "attention_window",
)

#: Our decoder's names of weights, as patterns, and those of the modelling files.
RENAMED = (
    (r"^embed_tokens\.weight$", "model.embed_tokens.words.weight"),
    (
        r"^embed_tokens\.embeddings\.(\d+)\.([01])\.weight$",
        r"model.embed_tokens.bands.\1.\2.weight",
    ),
    (r"^project_in_dim\.", "model.embed_tokens.project."),
    (r"^embed_positions\.(?!_float_tensor)", "model.positions."),
    (r"^(layers|layer_norm|layernorm_embedding)\.", r"model.\1."),
    (r"^project_out_dim\.", "lm_head.project."),
    (r"^output_projection\.", "lm_head.words."),
)
#: Largest difference of scores that rounding explains.
TOLERANCE = 1e-3
_TOKENS = 256  # to compare on


@dataclass(frozen=True)
class Converted:
    """Attributes:
    model: in evaluation mode, in fp32 on the CPU.
    architecture: as people write it.
    reason: one sentence on why that one.
    difference: between the scores of both on random tokens, the largest.
    """

    model: PreTrainedModel
    architecture: str
    reason: str
    difference: float


def convert(decoder: nn.Module, description: Description) -> Converted:
    """The model of transformers that computes the same.

    Raises:
        BadInput: there is none.
    """
    native = NATIVE.get(description.position_method)
    needed = list(native.needed(description)) if native else []
    weights = decoder.state_dict()
    if native and not needed:
        config = native.config(description)
        model = AutoModelForCausalLM.from_config(config)
        converted = native.exported(description, weights)
        name, reason = native.name, f"{native.name} computes the same, without code of ours."
    else:
        model = AlibiLmForCausalLM(own_config(description))
        converted = own_weights(decoder, weights)
        name = NAME
        reason = f"No architecture of transformers has '{description.position_method}' positions."
        if native:
            reason = (
                f"{native.name} would have fit a model trained with these options: "
                f"{', '.join(needed)}."
            )
    model.load_state_dict({key: w.detach().clone() for key, w in converted.items()}, strict=True)
    model.eval()
    difference = compare(decoder, model, description.train_length)
    if not difference <= TOLERANCE:
        raise BadInput(
            f"The exported model ({name}) gives other scores than the checkpoint (difference "
            f"{difference:.1e}): it was trained with an option that no exported form holds."
        )
    return Converted(model, name, reason, difference)


@torch.no_grad()
def compare(decoder: Any, model: PreTrainedModel, train_length: int) -> float:
    """Largest difference of log-probabilities between a decoder and its converted form."""
    first, words = decoder.dictionary.nspecial, len(decoder.dictionary)
    numbers = torch.Generator().manual_seed(1)
    tokens = torch.randint(first, words, (2, min(_TOKENS, train_length)), generator=numbers)
    ours = decoder.get_normalized_probs(decoder(tokens), log_probs=True)
    theirs = model(tokens).logits.log_softmax(-1)
    return (ours - theirs).abs().max().item()


def own_config(model: Description) -> AlibiLmConfig:
    """The configuration of a model.

    Raises:
        BadInput: the modelling files do not know its position method or an option of it.
    """
    if model.position_method not in POSITIONS:
        raise BadInput(
            f"No exported form holds the position method '{model.position_method}' (there are: "
            f"{', '.join(POSITIONS)})."
        )
    for option in model.options:
        if option not in OWN_OPTIONS:
            raise BadInput(
                f"No exported form holds --{option.replace('_', '-')}; train without it."
            )
    window, memory = (model.options.get(option) for option in ("attention_window", "mem_len"))
    if window == 1 or (window and memory):
        other = "--mem-len" if memory else "a window of 1"
        raise BadInput(
            f"No exported form holds --attention-window with {other}: transformers' caches cannot."
        )
    scale = model.options.get("alibi_scale", 1.0)
    return AlibiLmConfig(
        vocab_size=model.vocabulary,
        hidden_size=model.width,
        intermediate_size=model.inner,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        hidden_act=model.activation,
        position_method=model.position_method,
        train_length=model.train_length,
        normalize_before=model.normalize_before,
        final_norm=model.final_norm,
        embedding_norm=model.embedding_norm,
        embedding_scale=model.embedding_scale,
        embedding_bands=model.adaptive_input,
        softmax_bands=model.adaptive_softmax,
        embedding_width=model.input_width,
        output_width=model.output_width,
        alibi_scale=None if scale == "dynamic" else float(str(scale)),
        alibi_bias_max=model.options.get("alibi_bias_max", 8.0),
        clamp_learned_positions=model.options.get("clamp_learned_positions", False),
        sliding_window=window,
        memory_length=memory or 0,
        dropout=model.dropout,
        attention_dropout=model.attention_dropout,
        activation_dropout=model.activation_dropout,
        tie_word_embeddings=model.tied,
        **SPECIAL,
    )


def own_weights(decoder: Any, weights: Weights) -> Weights:
    """Weights by the modelling files' names."""
    result = {}
    for name, tensor in weights.items():
        for pattern, new in RENAMED:
            if re.search(pattern, name):
                result[re.sub(pattern, new, name)] = tensor
    if decoder.adaptive_softmax is not None:
        parts = softmax_parts(decoder.adaptive_softmax)
        result |= {f"lm_head.{name}.weight": tensor for name, tensor in parts.items()}
    return result
