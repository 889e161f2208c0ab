"""A decoder as a model of transformers: natively where that is exact, else by our own files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..errors import UserInputError
from ..models.config import AlibiLanguageModelConfig
from ..models.decoder import parse_windows
from ..models.output_projection import excluded_symbols
from ..positions import PositionConfig
from ..positions.rotary import Rotary
from .architectures import ACTIVATIONS, NATIVE, Weights
from .configuration_alibi_lm import AlibiLmConfig
from .modeling_alibi_lm import AlibiLmForCausalLM
from .positions_alibi_lm import POSITIONS
from .rope_parameters import rope_parameters

NAME = "alibi_lm"
#: Options of ours that an exported model holds, or that say nothing about what it computes.
SUPPORTED_OPTIONS = {
    *("position_method", "attention_backend", "train_length", "train_seed"),
    *("mem_len", "attention_window", "alibi_scale", "alibi_bias_max", "clamp_learned_positions"),
    "excluded_symbols",
    *Rotary.options,
}
#: All others beyond those of fairseq's plain transformer, and their defaults.
NOT_HELD = {
    field.name: field.default
    for field in fields(AlibiLanguageModelConfig)
    if field.name
    not in TransformerLanguageModelConfig.__dataclass_fields__.keys() | SUPPORTED_OPTIONS
    or field.name.startswith("scale_")
}
#: Our decoder's names of weights, as patterns, and those of the modelling files.
RENAMED = (
    (r"^embed_tokens\.weight$", "model.embed_tokens.words.weight"),
    (r"^embed_tokens\.embeddings\.(\d+\.[01]\.weight)$", r"model.embed_tokens.bands.\1"),
    (r"^project_in_dim\.", "model.embed_tokens.project."),
    (r"^embed_positions\.(?!_float_tensor)", "model.positions."),
    (r"^(layers|layer_norm|layernorm_embedding)\.", r"model.\1."),
    (r"^project_out_dim\.", "lm_head.project."),
    (r"^output_projection\.", "lm_head.words."),
)
#: Largest difference of scores that rounding explains.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Converted:
    model: PreTrainedModel  # in evaluation mode, in fp32 on the CPU
    architecture: str
    reason: str  # one sentence on why that one
    difference: float  # between the scores of both on random tokens, the largest


def convert(decoder: nn.Module, position_method: str, train_length: int) -> Converted:
    """The model of transformers that computes the same as one of ours or of ``transformer_lm``.

    Raises:
        UserInputError: there is none.
    """
    config = describe(decoder, position_method, train_length)
    native = NATIVE.get(position_method)
    required = native.required(config) if native else {}
    needed = [f"{field} = {v}" for field, v in required.items() if getattr(config, field) != v]
    if native and not needed:
        model = AutoModelForCausalLM.from_config(native.config(config))
        converted = native.exported(config, decoder.state_dict())
        name, reason = native.name, f"{native.name} computes the same, without code of ours."
    elif config.rotary_parameters is not None:
        raise UserInputError(
            f"Only {NATIVE['rotary'].name} holds rotary positions with options, and it would have fit "
            f"a model with {', '.join(needed)}. Train without {' or '.join(changed_options(decoder))}."
        )
    else:
        model = AlibiLmForCausalLM(config)
        converted = own_weights(decoder)
        name, reason = NAME, f"No architecture of transformers has '{position_method}' positions."
        if native:
            reason = f"{native.name} would have fit a model with {', '.join(needed)}."
    model.load_state_dict({key: w.detach().clone() for key, w in converted.items()}, strict=True)
    model.eval()
    difference = compare(decoder, lambda tokens: model(tokens).logits, train_length)
    return Converted(model, name, reason, difference)


@torch.no_grad()
def compare(decoder: Any, scores: Callable[[Tensor], Tensor], train_length: int) -> float:
    """Largest difference of log-probabilities between a decoder and another model's scores.

    Raises:
        UserInputError: it is larger than what rounding explains.
    """
    first, words = decoder.dictionary.nspecial, len(decoder.dictionary)
    numbers = torch.Generator().manual_seed(1)
    tokens = torch.randint(first, words, (2, min(256, train_length)), generator=numbers)
    ours = decoder.get_normalized_probs(decoder(tokens), log_probs=True)
    theirs = scores(tokens).log_softmax(-1)
    # Symbols without probability have -inf on both sides, whose difference is NaN.
    difference = (ours - theirs).masked_fill(ours == theirs, 0).abs().max().item()
    if not difference <= TOLERANCE:
        raise UserInputError(
            f"The converted model gives other scores (largest difference {difference:.1e}): the "
            "original has an option that the other form does not hold."
        )
    return difference


def describe(decoder: Any, position_method: str, train_length: int) -> AlibiLmConfig:
    """What a decoder is, in the words of the modelling files.

    Raises:
        UserInputError: they do not know its position method or an option of it.
    """
    if position_method not in POSITIONS:
        raise UserInputError(
            f"No exported form holds the position method '{position_method}' (there are: "
            f"{', '.join(POSITIONS)})."
        )
    args = decoder.args
    for option, default in NOT_HELD.items():
        if getattr(args, option, default) != default:
            raise UserInputError(
                f"No exported form holds --{option.replace('_', '-')}; train without it."
            )
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    activations["gelu_fast"] = activations["gelu_accurate"]
    windows = set(parse_windows(getattr(args, "attention_window", "0"), len(decoder.layers)))
    if len(windows) > 1:
        raise UserInputError(
            f"No exported form holds windows that differ between layers (--attention-window "
            f"{args.attention_window}). Train with one window."
        )
    window, memory = windows.pop(), getattr(args, "mem_len", 0)
    if window == 1 or (window and memory):
        other = "--mem-len" if memory else "a window of 1"
        raise UserInputError(
            f"No exported form holds --attention-window with {other}: transformers' caches cannot."
        )
    scale = getattr(args, "alibi_scale", "none")
    layer, softmax, embedding = decoder.layers[0], decoder.adaptive_softmax, decoder.embed_tokens
    tied, input_bands, softmax_bands = decoder.share_input_output_embed, None, None
    if args.adaptive_input:
        widths = [band[0].embedding_dim for band in embedding.embeddings]
        input_bands = list(zip([0, *embedding.cutoff], widths))
    if softmax is not None:
        tied = args.tie_adaptive_weights
        widths = [softmax.input_dim, *(scores.weight.shape[1] for _, _, scores in softmax.tail)]
        softmax_bands = list(zip([0, *softmax.cutoff], widths))
    return AlibiLmConfig(
        vocab_size=len(decoder.dictionary),
        hidden_size=decoder.embed_dim,
        intermediate_size=layer.fc1.out_features,
        num_hidden_layers=len(decoder.layers),
        num_attention_heads=layer.self_attn.num_heads,
        hidden_act=activations[args.activation_fn],
        position_method=position_method,
        train_length=train_length,
        normalize_before=layer.normalize_before,
        final_norm=decoder.layer_norm is not None,
        embedding_norm=decoder.layernorm_embedding is not None,
        embedding_scale=float(decoder.embed_scale),
        embedding_bands=input_bands,
        softmax_bands=softmax_bands,
        embedding_width=embedding.embedding_dim,
        output_width=decoder.output_embed_dim,
        excluded_symbols=excluded_symbols(getattr(args, "excluded_symbols", "none")) or None,
        alibi_scale=None if scale == "dynamic" else float(scale if scale != "none" else 1),
        alibi_bias_max=getattr(args, "alibi_bias_max", 8.0),
        clamp_learned_positions=getattr(args, "clamp_learned_positions", False),
        rotary_parameters=rotary_parameters(decoder),
        sliding_window=window or None,
        memory_length=memory,
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        activation_dropout=args.activation_dropout,
        tie_word_embeddings=tied,
    )


def rotary_parameters(decoder: Any) -> dict[str, Any] | None:
    """Return transformers' description of a rotation with options; None without any."""
    return rope_parameters(decoder.embed_positions) if changed_options(decoder) else None


def changed_options(decoder: Any) -> list[str]:
    """Return the flags of rotary options that a decoder does not leave at their defaults."""
    if not isinstance(decoder.embed_positions, Rotary):
        return []
    config = decoder.embed_positions.config
    return [
        "--" + option.replace("_", "-")
        for option in Rotary.options
        if getattr(config, option) != getattr(PositionConfig, option)
    ]


def own_weights(decoder: Any) -> Weights:
    """Weights by the modelling files' names."""
    result = {
        re.sub(pattern, new, name): tensor
        for name, tensor in decoder.state_dict().items()
        for pattern, new in RENAMED
        if re.search(pattern, name)
    }
    softmax = decoder.adaptive_softmax
    if softmax is None:
        return result
    words = softmax.cutoff[0]
    if hasattr(softmax.head, "word_proj"):  # tied to the input
        parts = {"words": softmax.head.word_proj.weight, "classes": softmax.head.class_proj.weight}
    else:
        parts = {"words": softmax.head.weight[:words], "classes": softmax.head.weight[words:]}
    for index, (project, _, scores) in enumerate(softmax.tail):
        transposed = getattr(project, "transpose", False)
        parts[f"tails.{index}.0"] = project.weight.t() if transposed else project.weight
        parts[f"tails.{index}.1"] = scores.weight
    return {**result, **{f"lm_head.{name}.weight": part for name, part in parts.items()}}
