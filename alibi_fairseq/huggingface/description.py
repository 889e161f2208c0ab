"""What a trained decoder consists of, as far as another library has to know."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from ..errors import BadInput
from ..positions import METHOD_OPTIONS, PositionConfig

#: fairseq's names of activation functions, and those of transformers for the same functions.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_pytorch_tanh",
    "gelu_fast": "gelu_pytorch_tanh",
    "tanh": "tanh",
    "linear": "linear",
}
#: Options of fairseq's transformer that add parameters no exported model has a place for.
WITHOUT_A_PLACE = ("scale_fc", "scale_attn", "scale_heads", "scale_resids")


@dataclass(frozen=True)
class Description:
    """A language model.

    Attributes:
        position_method: ``alibi``, …
        train_length: tokens per training sample.
        vocabulary: entries of the dictionary.
        width, inner, layers, heads: C, feed-forward width, number of layers, H.
        activation: in transformers' words.
        normalize_before, final_norm, embedding_norm: where layer norms stand.
        embedding_scale: factor of the token embeddings, √C or 1.
        tied: output words are input words.
        adaptive_input, adaptive_softmax: the (first word, width) of each band, or None.
        input_width, output_width: of plain embeddings.
        dropout, attention_dropout, activation_dropout: probabilities in training.
        options: the options of the position method, and the limits of attention, that were given.
    """

    position_method: str
    train_length: int
    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    activation: str
    normalize_before: bool
    final_norm: bool
    embedding_norm: bool
    embedding_scale: float
    tied: bool
    adaptive_input: list[tuple[int, int]] | None
    adaptive_softmax: list[tuple[int, int]] | None
    input_width: int
    output_width: int
    dropout: float
    attention_dropout: float
    activation_dropout: float
    options: dict[str, object]


def describe(decoder: Any, position_method: str, train_length: int) -> Description:
    """The description of a decoder of fairseq's ``transformer_lm`` or of this project.

    Raises:
        BadInput: it has parts that cannot be exported.
    """
    args = decoder.args
    for option in WITHOUT_A_PLACE:
        if getattr(args, option, False):
            flag = "--" + option.replace("_", "-")
            raise BadInput(f"A model trained with {flag} cannot be exported; train without it.")
    if args.activation_fn not in ACTIVATIONS:
        raise BadInput(
            f"A model trained with --activation-fn {args.activation_fn} cannot be exported; use "
            f"one of {', '.join(ACTIVATIONS)}."
        )
    layer, softmax, embedding = decoder.layers[0], decoder.adaptive_softmax, decoder.embed_tokens
    tied = decoder.share_input_output_embed if softmax is None else args.tie_adaptive_weights
    return Description(
        position_method=position_method,
        train_length=train_length,
        vocabulary=len(decoder.dictionary),
        width=decoder.embed_dim,
        inner=layer.fc1.out_features,
        layers=len(decoder.layers),
        heads=layer.self_attn.num_heads,
        activation=ACTIVATIONS[args.activation_fn],
        normalize_before=layer.normalize_before,
        final_norm=decoder.layer_norm is not None,
        embedding_norm=decoder.layernorm_embedding is not None,
        embedding_scale=float(decoder.embed_scale),
        tied=tied,
        adaptive_input=bands_of_input(embedding) if args.adaptive_input else None,
        adaptive_softmax=None if softmax is None else bands_of_softmax(softmax),
        input_width=embedding.embedding_dim,
        output_width=decoder.output_embed_dim,
        dropout=args.dropout,
        attention_dropout=args.attention_dropout,
        activation_dropout=args.activation_dropout,
        options={
            **given_options(getattr(decoder.embed_positions, "config", None)),
            **limits(decoder),
        },
    )


def given_options(config: PositionConfig | None) -> dict[str, object]:
    """The options of the position method that are not at their defaults."""
    defaults = {field.name: field.default for field in fields(PositionConfig)}
    values = {name: getattr(config, name, defaults[name]) for name in METHOD_OPTIONS}
    return {name: value for name, value in values.items() if value != defaults[name]}


def limits(decoder: Any) -> dict[str, object]:
    """The options of attention itself; fairseq's decoders have none."""
    defaults = {"attention_window": 0, "block_diagonal": "none", "score_scaling": "none"}
    values = {name: getattr(decoder, name, default) for name, default in defaults.items()}
    return {name: value for name, value in values.items() if value != defaults[name]}


def bands_of_input(embedding: Any) -> list[tuple[int, int]]:
    """(first word, width) of each band of fairseq's ``AdaptiveInput``."""
    widths = [band[0].embedding_dim for band in embedding.embeddings]
    return list(zip([0, *embedding.cutoff], widths))


def bands_of_softmax(softmax: Any) -> list[tuple[int, int]]:
    """(first word, width) of each band of fairseq's ``AdaptiveSoftmax``."""
    widths = [softmax.input_dim, *(scores.weight.shape[1] for _, _, scores in softmax.tail)]
    return list(zip([0, *softmax.cutoff], widths))


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
