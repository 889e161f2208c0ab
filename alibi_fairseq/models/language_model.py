"""The registered language models, one per named size."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import Embedding
from fairseq.modules import AdaptiveInput as FairseqAdaptiveInput
from torch import Tensor

from ..attention import SCORE_SCALINGS, SEPARATORS, check_backend
from ..errors import UserInputError
from ..positions.alibi import slopes_option
from ..results import manifest
from ..results.provenance import bind_dictionary
from .config import NAMED_SIZES, AlibiLanguageModelConfig
from .decoder import AlibiDecoder, parse_windows
from .output_projection import excluded_symbols


@register_model("alibi_lm", dataclass=AlibiLanguageModelConfig)
class AlibiLanguageModel(FairseqLanguageModel):
    """A transformer language model with a configurable position method.

    :meth:`from_pretrained` gives fairseq's hub interface with ``score`` and ``sample``.
    """

    config = AlibiLanguageModelConfig

    def forward(self, src_tokens, segment=None, **kwargs):
        """Scores of the next token at every position.

        Args:
            segment: the place of these tokens in a longer text
                (:class:`alibi_fairseq.tasks.segment_memory.Segment`): provides the states of the
                previous segment and stores those of this one. Without it the model is stateless.
            others, returns: as in :meth:`AlibiDecoder.forward`.
        """
        if segment is None or self.decoder.embed_positions.memory_length == 0:
            return self.decoder(src_tokens, **kwargs)
        scores, extra = self.decoder(src_tokens, memory=segment.past(), **kwargs)
        segment.leave(extra["memory"])
        return scores, extra

    @classmethod
    def from_pretrained(
        cls, model_name_or_path, checkpoint_file="model.pt", data_name_or_path=".", **kwargs
    ):
        """fairseq's hub interface, which takes and returns text.

        Args:
            data_name_or_path: data folder. If it has a manifest, text is tokenised as the data was.
            **kwargs: ``bpe`` names another tokeniser.
        """
        if "bpe" not in kwargs:
            kwargs = {**tokenizer_options(data_name_or_path), **kwargs}
        return super().from_pretrained(
            model_name_or_path, checkpoint_file, data_name_or_path, **kwargs
        )

    @classmethod
    def add_args(cls, parser):
        """Options of the model's dataclass.

        In fairseq, passing a flag whose default is True sets it to *False*, so that
        ``--share-decoder-input-output-embed`` would untie the embeddings. Here such a flag means
        what it says, and ``--no-…`` disables it.
        """
        for option in dataclasses.fields(cls.config):
            if option.default is True:
                parser.add_argument(
                    "--" + option.name.replace("_", "-"),
                    action=argparse.BooleanOptionalAction,
                    default=argparse.SUPPRESS,
                    help=option.metadata.get("help"),
                )
        parser.add_argument(
            "--alibi-slopes",
            type=slopes_option,
            default=argparse.SUPPRESS,
            metavar="paper|trainable|random|FILE",
            help=cls.config.__dataclass_fields__["alibi_slopes"].metadata["help"],
        )
        super().add_args(parser)

    @classmethod
    def build_model(cls, args, task):
        """Raises UserInputError if the options are inconsistent."""
        args = plain_options(args)
        for width in ("decoder_input_dim", "decoder_output_dim"):
            if getattr(args, width) is None:
                setattr(args, width, args.decoder_embed_dim)
        if args.decoder_layers_to_keep:
            layers = args.decoder_layers_to_keep.split(",")
            if not all(layer.isdecimal() for layer in layers):  # fairseq only counts them
                raise UserInputError("--decoder-layers-to-keep is a list of layers such as 0,2,4.")
            args.decoder_layers = len(layers)
            if "," in f"{args.position_method}{args.attention_window}":
                raise UserInputError(
                    "--decoder-layers-to-keep cannot be combined with a --position-method or "
                    "--attention-window that differs between layers. Keep all layers."
                )
        check_options(args)
        check_excluded_symbols(args, len(task.target_dictionary))
        bind_dictionary(task)
        # The position method takes care of positions; fairseq's decoder must not add its own.
        args.no_token_positional_embeddings = True
        embed_tokens = cls.build_embedding(args, task.source_dictionary)
        model = cls(AlibiDecoder(args, task.target_dictionary, embed_tokens))
        for name, buffer in model.named_buffers():
            if name.endswith("_float_tensor"):
                # fairseq's adaptive input and softmax leave it as they find the memory, so that the
                # checkpoints of two equal trainings would differ in it.
                buffer.zero_()
        if model.decoder.embed_positions.memory_length and not getattr(
            task, "is_sequential", False
        ):
            raise UserInputError(
                "A model with --mem-len needs contiguous segments; add "
                "--task segment_language_modeling (fairseq-eval-lm also takes the task from its "
                "command line, not from the checkpoint)."
            )
        return model

    @classmethod
    def build_embedding(cls, args, dictionary):
        """Adaptive or plain token embeddings."""
        if not args.adaptive_input:
            return Embedding(len(dictionary), args.decoder_input_dim, dictionary.pad())
        return AdaptiveInput(
            len(dictionary),
            dictionary.pad(),
            args.decoder_input_dim,
            args.adaptive_input_factor,
            args.decoder_embed_dim,
            [int(cutoff) for cutoff in args.adaptive_input_cutoff.split(",")],
            args.quant_noise_pq,
            args.quant_noise_pq_block_size,
        )


def tokenizer_options(data: str) -> dict[str, str | bool]:
    """fairseq's options for the tokeniser of a data folder; none for words, or without a manifest."""
    described = manifest.load(data)
    tokenizer = {} if described is None else described["tokenizer"]
    files = [str(Path(data) / name) for name in tokenizer.get("files", [])]
    if tokenizer.get("kind") == "sentencepiece-bpe":
        return {"bpe": "sentencepiece", "sentencepiece_model": files[0]}
    if tokenizer.get("kind") == "byte-level-bpe":
        return {"bpe": "gpt2", "gpt2_encoder_json": files[0], "gpt2_vocab_bpe": files[1]}
    if tokenizer.get("kind") == "wordpiece":
        cased = not tokenizer["lower_case"]
        return {"bpe": "bert", "bpe_vocab_file": files[0], "bpe_cased": cased}
    return {}


def plain_options(args) -> argparse.Namespace:
    """The options as plain values, because fairseq's enumeration types cannot be pickled."""
    names = [option.name for option in dataclasses.fields(AlibiLanguageModelConfig)]
    values = {name: getattr(args, name) for name in names}
    return argparse.Namespace(
        **{name: getattr(value, "value", value) for name, value in values.items()}
    )


#: Least values of options, and options that are probabilities.
LEAST = {
    **dict.fromkeys(("decoder_layers", "decoder_embed_dim", "decoder_attention_heads"), 1),
    **dict.fromkeys(("decoder_ffn_embed_dim", "decoder_input_dim", "decoder_output_dim"), 1),
    "train_length": 1,
}
CHANCES = (
    *("dropout", "attention_dropout", "activation_dropout", "adaptive_softmax_dropout"),
    *("decoder_layerdrop", "relu_dropout"),
)


def check_options(args: argparse.Namespace) -> None:
    """Raises UserInputError if the options are inconsistent."""

    def check(option: str, valid: bool, range: str) -> None:
        if not valid:
            flag = "--" + option.replace("_", "-")
            raise UserInputError(f"{flag} must be {range}, not {getattr(args, option)}.")

    for option, least in LEAST.items():
        check(option, getattr(args, option) >= least, f"at least {least}")
    for option in CHANCES:
        check(option, 0 <= getattr(args, option) < 1, "at least 0 and less than 1")
    for option, choices in (("score_scaling", SCORE_SCALINGS), ("block_diagonal", SEPARATORS)):
        check(option, getattr(args, option) in choices, f"one of {', '.join(choices)}")
    if args.block_diagonal != "none" and args.mem_len > 0:
        raise UserInputError(
            "--block-diagonal cannot be combined with --mem-len; drop one of the two."
        )
    if args.decoder_embed_dim % args.decoder_attention_heads:
        raise UserInputError(
            f"{args.decoder_attention_heads} attention heads do not divide a model width of "
            f"{args.decoder_embed_dim}; change --decoder-attention-heads or --decoder-embed-dim."
        )
    if args.adaptive_input and not args.adaptive_input_cutoff:
        raise UserInputError("--adaptive-input requires cutoffs. Pass --adaptive-input-cutoff N,N.")
    if args.character_embeddings:
        raise UserInputError("Character embeddings are not supported; drop --character-embeddings.")
    own, softmax = (
        (getattr(args, f"adaptive_{kind}_cutoff"), getattr(args, f"adaptive_{kind}_factor"), width)
        for kind, width in (("input", args.decoder_input_dim), ("softmax", args.decoder_output_dim))
    )
    if args.tie_adaptive_weights and not (args.adaptive_input and own == softmax):
        raise UserInputError(
            "--tie-adaptive-weights needs --adaptive-input, and equal cutoffs, factors and widths of "
            "input and softmax."
        )
    parse_windows(args.attention_window, args.decoder_layers)
    check_backend(args.attention_backend)


def check_excluded_symbols(args: argparse.Namespace, vocabulary: int) -> None:
    """Raise UserInputError if the excluded symbols do not fit the dictionary or the softmax."""
    excluded = excluded_symbols(args.excluded_symbols)
    if any(symbol >= vocabulary for symbol in excluded):
        raise UserInputError(
            f"--excluded-symbols {args.excluded_symbols} does not fit the dictionary. Pass indices "
            f"less than {vocabulary}."
        )
    if excluded and args.adaptive_softmax_cutoff is not None:
        raise UserInputError(
            "--excluded-symbols cannot be combined with --adaptive-softmax-cutoff. Drop one of them."
        )


for _name, _config in NAMED_SIZES.items():
    _members = {"config": _config, "__module__": __name__}
    # In this module, where pickle looks for it.
    globals()[_name] = type(_name, (AlibiLanguageModel,), _members)
    register_model(_name, dataclass=_config)(globals()[_name])


class AdaptiveInput(FairseqAdaptiveInput):
    """fairseq's adaptive input, with the same parameters and values, without waiting for a GPU.

    fairseq's own picks the tokens of each band with a mask, and the host waits three times per band for
    their number. On a GPU every band is computed for all tokens here and the right one is kept: a few
    more products, small beside one layer's, and no waiting.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens -> (B, T, C)."""
        if tokens.device.type == "cpu":
            return super().forward(tokens)
        return self.every_band(tokens)

    def every_band(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens -> (B, T, C)."""
        result, first = None, 0
        for end, embed in zip(self.cutoff, self.embeddings, strict=True):
            inside = (tokens >= first) & (tokens < end)  # (B, T)
            of_band = embed(torch.where(inside, tokens - first, 0))  # (B, T, C)
            of_band = of_band.to(self._float_tensor.dtype)
            chosen = inside.unsqueeze(-1)
            result = torch.where(chosen, of_band, 0 if result is None else result)
            first = end
        assert result is not None, "there is at least one band"
        return result
