"""A decoder as a model of transformers: natively where that is exact, else by our own files."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..errors import BadInput
from ..positions import METHOD_OPTIONS, PositionConfig
from .architectures import ACTIVATIONS, NATIVE, OWN_OPTIONS, Weights
from .configuration_alibi_lm import AlibiLmConfig
from .modeling_alibi_lm import AlibiLmForCausalLM
from .positions_alibi_lm import POSITIONS

NAME = "alibi_lm"
#: Options beyond those of fairseq's plain transformer, and their defaults.
MORE_OPTIONS = {
    **{
        field.name: field.default
        for field in fields(PositionConfig)
        if field.name in METHOD_OPTIONS
    },
    **{"attention_window": 0, "block_diagonal": "none", "score_scaling": "none"},
    **dict.fromkeys(("scale_fc", "scale_attn", "scale_heads", "scale_resids"), False),
}

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
    model: PreTrainedModel  # in evaluation mode, in fp32 on the CPU
    architecture: str
    reason: str  # one sentence on why that one
    difference: float  # between the scores of both on random tokens, the largest


def convert(decoder: nn.Module, position_method: str, train_length: int) -> Converted:
    """The model of transformers that computes the same as one of ours or of ``transformer_lm``.

    Raises:
        BadInput: there is none.
    """
    config = describe(decoder, position_method, train_length)
    native = NATIVE.get(position_method)
    needed = native.needed(config) if native else []
    weights = decoder.state_dict()
    if native and not needed:
        model = AutoModelForCausalLM.from_config(native.config(config))
        converted = native.exported(config, weights)
        name, reason = native.name, f"{native.name} computes the same, without code of ours."
    else:
        model = AlibiLmForCausalLM(config)
        converted = own_weights(decoder, weights)
        name = NAME
        reason = f"No architecture of transformers has '{position_method}' positions."
        if native:
            reason = (
                f"{native.name} would have fit a model trained with these options: "
                f"{', '.join(needed)}."
            )
    model.load_state_dict({key: w.detach().clone() for key, w in converted.items()}, strict=True)
    model.eval()
    difference = compare(decoder, lambda tokens: model(tokens).logits, train_length)
    if not difference <= TOLERANCE:
        raise BadInput(
            f"The exported model ({name}) gives other scores than the checkpoint (difference "
            f"{difference:.1e}): it was trained with an option that no exported form holds."
        )
    return Converted(model, name, reason, difference)


@torch.no_grad()
def compare(decoder: Any, scores: Callable[[Tensor], Tensor], train_length: int) -> float:
    """Largest difference of log-probabilities between a decoder and another model's scores."""
    first, words = decoder.dictionary.nspecial, len(decoder.dictionary)
    numbers = torch.Generator().manual_seed(1)
    tokens = torch.randint(first, words, (2, min(_TOKENS, train_length)), generator=numbers)
    ours = decoder.get_normalized_probs(decoder(tokens), log_probs=True)
    theirs = scores(tokens).log_softmax(-1)
    return (ours - theirs).abs().max().item()


def describe(decoder: Any, position_method: str, train_length: int) -> AlibiLmConfig:
    """What a decoder is, in the words of the modelling files.

    Raises:
        BadInput: they do not know its position method or an option of it.
    """
    if position_method not in POSITIONS:
        raise BadInput(
            f"No exported form holds the position method '{position_method}' (there are: "
            f"{', '.join(POSITIONS)})."
        )
    args, options = decoder.args, given_options(decoder)
    for option in options:
        if option not in OWN_OPTIONS.values():
            raise BadInput(
                f"No exported form holds --{option.replace('_', '-')}; train without it."
            )
    activations = {ours: theirs for theirs, ours in ACTIVATIONS.items()}
    activations["gelu_fast"] = activations["gelu_accurate"]
    if args.activation_fn not in activations:
        raise BadInput(
            f"No exported form holds --activation-fn {args.activation_fn}; use one of "
            f"{', '.join(activations)}."
        )
    window, memory = (options.get(option) for option in ("attention_window", "mem_len"))
    if window == 1 or (window and memory):
        other = "--mem-len" if memory else "a window of 1"
        raise BadInput(
            f"No exported form holds --attention-window with {other}: transformers' caches cannot."
        )
    scale = options.get("alibi_scale", 1.0)
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
        alibi_scale=None if scale == "dynamic" else float(str(scale)),
        alibi_bias_max=options.get("alibi_bias_max", 8.0),
        clamp_learned_positions=options.get("clamp_learned_positions", False),
        sliding_window=window,
        memory_length=memory or 0,
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        activation_dropout=args.activation_dropout,
        tie_word_embeddings=tied,
    )


def given_options(decoder: Any) -> dict[str, Any]:
    """Those of ``MORE_OPTIONS`` that are not at their defaults."""
    holders = (getattr(decoder.embed_positions, "config", None), decoder, decoder.args)
    given = {}
    for option, default in MORE_OPTIONS.items():
        values = (getattr(holder, option) for holder in holders if hasattr(holder, option))
        if (value := next(values, default)) != default:
            given[option] = value
    return given


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


def softmax_parts(softmax: Any) -> dict[str, Tensor]:
    """The matrices of fairseq's ``AdaptiveSoftmax``, tied or not, by the names of our own.

    ``words``, ``classes``, ``tails.i.0`` and ``tails.i.1``; each to be multiplied from the left.
    """
    words = softmax.cutoff[0]
    if hasattr(softmax.head, "word_proj"):  # tied to the input
        parts = {"words": softmax.head.word_proj.weight, "classes": softmax.head.class_proj.weight}
    else:
        parts = {"words": softmax.head.weight[:words], "classes": softmax.head.weight[words:]}
    for index, (project, _, scores) in enumerate(softmax.tail):
        transposed = getattr(project, "transpose", False)
        parts[f"tails.{index}.0"] = project.weight.t() if transposed else project.weight
        parts[f"tails.{index}.1"] = scores.weight
    return parts
