"""Convert a decoder to a model of transformers: a native architecture if one is exact."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..blocks import BlockOptions
from ..blocks.normalization import EPS
from ..errors import UserInputError
from ..models.config import AlibiLanguageModelConfig
from ..models.output_projection import parse_excluded_symbols
from ..positions.alibi import Alibi
from ..positions.options import read_options
from ..positions.rotary import Rotary, RotaryOptions
from .architectures import ACTIVATIONS, Weights
from .configuration_alibi_lm import AlibiLmConfig
from .modeling_alibi_lm import AlibiLmForCausalLM
from .native_architectures import closest_architecture
from .positions_alibi_lm import POSITIONS, SUPPORTED_ROPE_TYPES
from .rope_parameters import rope_parameters
from .unsupported import not_in_transformers

#: Our options that exported models support, or that do not affect the scores.
SUPPORTED_OPTIONS = {
    "position_method",
    "attention_backend",
    "compile_layers",
    "train_length",
    "train_seed",
    "train_attention_window",
    "train_mem_len",
    "mem_len",
    "attention_window",
    "alibi_scale",
    "alibi_bias_max",
    "clamp_learned_positions",
    "excluded_symbols",
    "key_value_heads",
    *(field.name for field in fields(BlockOptions)),
    *(field.name for field in fields(RotaryOptions)),
}
#: Patterns of our decoder's weight names, and the names in the modeling files.
RENAMED = (
    (r"^embed_tokens\.weight$", "model.embed_tokens.words.weight"),
    (r"^embed_tokens\.embeddings\.(\d+\.[01]\.weight)$", r"model.embed_tokens.bands.\1"),
    (r"^project_in_dim\.", "model.embed_tokens.project."),
    (r"^embed_positions\.(?!_float_tensor)", "model.positions."),
    (r"^(layers|layer_norm|layernorm_embedding)\.", r"model.\1."),
    (r"^project_out_dim\.", "lm_head.project."),
    (r"^output_projection\.", "lm_head.words."),
)
#: Largest difference between log-probabilities that is attributed to rounding.
MAX_LOG_PROB_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class Converted:
    """Converted model and its comparison with the decoder.

    Attributes:
        model: model in evaluation mode, in fp32 on the CPU.
        architecture: name of the architecture.
        reason: sentence that explains the choice of the architecture.
        difference: largest difference between log-probabilities on random tokens.
    """

    model: PreTrainedModel
    architecture: str
    reason: str
    difference: float


def convert_decoder(decoder: Any, position_method: str, train_length: int) -> Converted:
    """Convert one of our decoders or of ``transformer_lm`` to a model of transformers.

    Raises:
        UserInputError: if no such model computes the same scores.
    """
    description = describe_decoder(decoder, position_method, train_length)
    native, mismatches = closest_architecture(description)
    rotation = description.rotary_parameters
    if native is not None and not mismatches:
        model = AutoModelForCausalLM.from_config(native.to_native_config(description))
        weights = native.export_weights(description, decoder.state_dict())
        name = native.name
        reason = f"{native.name} computes the same scores without custom code."
    elif native is not None and rotation and rotation["rope_type"] not in SUPPORTED_ROPE_TYPES:
        scaling = f"--rotary-scaling {decoder.args.rotary_scaling}"
        raise not_in_transformers(f"{scaling} and {', '.join(mismatches)}")
    else:
        model = AlibiLmForCausalLM(description)
        weights = own_weights(decoder)
        name = AlibiLmConfig.model_type
        reason = f"No architecture of transformers has '{position_method}' positions."
        if native is not None:
            reason = f"With {', '.join(mismatches)}, it would be {native.name}."
    # Copies, so that the two models do not share memory.
    copies = {key: weight.detach().clone() for key, weight in weights.items()}
    model.load_state_dict(copies, strict=True)
    model.eval()
    difference = compare_scores(decoder, lambda tokens: model(tokens).logits, train_length)
    return Converted(model, name, reason, difference)


@torch.no_grad()
def compare_scores(decoder: Any, scores: Callable[[Tensor], Tensor], train_length: int) -> float:
    """Return the largest difference between the log-probabilities of two models.

    Args:
        scores: function that maps token IDs, (B, T), to logits, (B, T, V).

    Raises:
        UserInputError: if the difference is larger than rounding explains.
    """
    rng = torch.Generator().manual_seed(1)
    shape = (2, min(256, train_length))
    first_word = decoder.dictionary.nspecial
    tokens = torch.randint(first_word, len(decoder.dictionary), shape, generator=rng)
    original = decoder.get_normalized_probs(decoder(tokens), log_probs=True)
    converted = scores(tokens).log_softmax(-1)
    # Symbols without probability have -inf on both sides, whose difference is NaN.
    difference = (original - converted).masked_fill(original == converted, 0).abs().max().item()
    if not difference <= MAX_LOG_PROB_DIFFERENCE:  # also rejects NaN
        raise UserInputError(
            f"The converted model computes different scores (largest difference {difference:.1e}). "
            "The original has an option that the other format does not support."
        )
    return difference


def describe_decoder(decoder: Any, position_method: str, train_length: int) -> AlibiLmConfig:
    """Convert decoder options to :class:`AlibiLmConfig`.

    Raises:
        UserInputError: if exported models do not support the position method or an option.
    """
    if position_method not in POSITIONS:
        raise not_in_transformers(f"--position-method {position_method}")
    args = decoder.args
    for option, default in _unsupported_options().items():
        if getattr(args, option, default) != default:
            raise not_in_transformers("--" + option.replace("_", "-"))
    # gelu_accurate has two names in transformers, of which the last one counts.
    activations = {our_name: native_name for native_name, our_name in ACTIVATIONS.items()}
    activations["gelu_fast"] = activations["gelu_accurate"]
    window = _attention_window(decoder)
    layer = decoder.layers[0]
    gated = getattr(args, "ffn", "mlp") == "swiglu"
    tied = decoder.share_input_output_embed
    if decoder.adaptive_softmax is not None:
        tied = args.tie_adaptive_weights
    return AlibiLmConfig(
        vocab_size=len(decoder.dictionary),
        hidden_size=decoder.embed_dim,
        intermediate_size=layer.fc2.in_features,
        num_hidden_layers=len(decoder.layers),
        num_attention_heads=layer.self_attn.num_heads,
        num_key_value_heads=getattr(args, "key_value_heads", 0) or layer.self_attn.num_heads,
        hidden_act="silu" if gated else activations[args.activation_fn],
        gated_ffn=gated,
        linear_biases=getattr(args, "linear_biases", True),
        normalization=getattr(args, "normalization", "layer"),
        normalize_queries_keys=getattr(args, "normalize_queries_keys", False),
        rms_norm_eps=getattr(args, "rms_norm_eps", EPS),
        position_method=position_method,
        train_length=train_length,
        normalize_before=layer.normalize_before,
        final_norm=decoder.layer_norm is not None,
        embedding_norm=decoder.layernorm_embedding is not None,
        embedding_scale=float(decoder.embed_scale),
        embedding_bands=_input_bands(decoder),
        softmax_bands=_softmax_bands(decoder),
        embedding_width=decoder.embed_tokens.embedding_dim,
        output_width=decoder.output_embed_dim,
        excluded_symbols=parse_excluded_symbols(getattr(args, "excluded_symbols", "none")) or None,
        alibi_scale=_alibi_scale(decoder),
        alibi_bias_max=getattr(args, "alibi_bias_max", 8.0),
        clamp_learned_positions=getattr(args, "clamp_learned_positions", False),
        rotary_parameters=rotary_parameters(decoder),
        sliding_window=window or None,
        memory_length=getattr(args, "mem_len", 0),
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        activation_dropout=args.activation_dropout,
        tie_word_embeddings=tied,
    )


def _unsupported_options() -> dict[str, Any]:
    """Return the options that exported models do not support, with their defaults.

    These are our other options, and fairseq's ``scale_*``, which add weights to each layer.
    """
    fairseq_options = TransformerLanguageModelConfig.__dataclass_fields__
    options = {}
    for field in fields(AlibiLanguageModelConfig):
        is_supported = field.name in fairseq_options or field.name in SUPPORTED_OPTIONS
        if not is_supported or field.name.startswith("scale_"):
            options[field.name] = field.default
    return options


def _input_bands(decoder: Any) -> list[tuple[int, int]] | None:
    """Return the first token ID and the width of each band of adaptive input, or None."""
    if not decoder.args.adaptive_input:
        return None
    embedding = decoder.embed_tokens
    widths = [band[0].embedding_dim for band in embedding.embeddings]
    return list(zip([0, *embedding.cutoff], widths))


def _softmax_bands(decoder: Any) -> list[tuple[int, int]] | None:
    """Return the first token ID and the width of each band of an adaptive softmax, or None."""
    softmax = decoder.adaptive_softmax
    if softmax is None:
        return None
    widths = [softmax.input_dim]
    for _, _, words in softmax.tail:
        widths.append(words.weight.shape[1])
    return list(zip([0, *softmax.cutoff], widths))


def _attention_window(decoder: Any) -> int:
    """Return the attention window of all layers in tokens; 0: unlimited.

    Raises:
        UserInputError: if windows differ, or if the caches of transformers do not support them.
    """
    args = decoder.args
    windows = set(getattr(decoder, "attention_windows", [0]))
    window = min(windows)
    # The caches of transformers support neither a window of 1 nor a window of a memory.
    if len(windows) > 1 or window == 1 or (window and getattr(args, "mem_len", 0)):
        raise not_in_transformers(f"--attention-window {args.attention_window}")
    return window


def _alibi_scale(decoder: Any) -> float | None:
    """Return the divisor of ALiBi's slopes, or None if it depends on the number of keys."""
    method = decoder.embed_positions
    return method.options.alibi_scale if isinstance(method, Alibi) else 1.0


def rotary_parameters(decoder: Any) -> dict[str, Any] | None:
    """Return transformers' ``rope_parameters`` of a rotation with options; None without any."""
    method = decoder.embed_positions
    if not isinstance(method, Rotary):
        return None
    changed = method.options != read_options(RotaryOptions, {})
    return rope_parameters(method) if changed else None


def own_weights(decoder: Any) -> Weights:
    """Return the weights of a decoder with the names in the modeling files."""
    weights = {}
    # Names of the adaptive softmax match no pattern. Its weights are added below.
    for name, tensor in decoder.state_dict().items():
        for pattern, new in RENAMED:
            if re.search(pattern, name):
                weights[re.sub(pattern, new, name)] = tensor
    softmax = decoder.adaptive_softmax
    if softmax is None:
        return weights
    num_frequent = softmax.cutoff[0]
    head = softmax.head
    if hasattr(head, "word_proj"):  # tied to the input
        weights["lm_head.words.weight"] = head.word_proj.weight
        weights["lm_head.classes.weight"] = head.class_proj.weight
    else:
        weights["lm_head.words.weight"] = head.weight[:num_frequent]
        weights["lm_head.classes.weight"] = head.weight[num_frequent:]
    for index, (project, _, words) in enumerate(softmax.tail):
        projection = project.weight
        if getattr(project, "transpose", False):
            projection = projection.t()
        weights[f"lm_head.tails.{index}.0.weight"] = projection
        weights[f"lm_head.tails.{index}.1.weight"] = words.weight
    return weights
