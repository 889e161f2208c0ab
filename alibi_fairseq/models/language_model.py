"""Registered language models, one per named size."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from fairseq import hub_utils
from fairseq.models import FairseqLanguageModel, register_model
from fairseq.models.transformer import Embedding
from fairseq.modules import AdaptiveInput as FairseqAdaptiveInput
from torch import Tensor

from ..attention import SCORE_SCALINGS, SEPARATORS, check_backend
from ..blocks import FEED_FORWARDS, NORMALIZATIONS
from ..errors import UserInputError
from ..positions import MethodSpec, all_options
from ..results.data_folder import DataFolder
from ..results.data_hashes import bind_dictionary
from .config import (
    AlibiLanguageModelConfig,
    BloomConfig,
    BookCorpusConfig,
    LargeConfig,
    ModernBookCorpusConfig,
    ModernConfig,
    ModernLargeConfig,
    ModernSmallConfig,
    ModernTinyConfig,
    ModernWiki103Config,
    SmallConfig,
    TinyConfig,
    Wiki103Config,
)
from .decoder import AlibiDecoder
from .hub_interface import HubInterface, check_encoder_files, check_hub_options


@register_model("alibi_lm", dataclass=AlibiLanguageModelConfig)
class AlibiLanguageModel(FairseqLanguageModel):
    """A transformer language model with a configurable position method.

    :meth:`from_pretrained` gives fairseq's hub interface with ``score`` and ``sample``.
    """

    config = AlibiLanguageModelConfig

    def forward(self, src_tokens, segment=None, **kwargs):
        """Compute the scores of the next token at every position.

        :meth:`AlibiDecoder.forward` lists the other arguments and the results.

        Args:
            src_tokens: (B, T) token IDs.
            segment: position of these tokens in a longer text
                (:class:`alibi_fairseq.plugin.segment_memory.Segment`). It provides the state of the
                previous segment and stores the state of this one. Without it the model is
                stateless.
        """
        if segment is None:
            return self.decoder(src_tokens, **kwargs)
        segment = segment.of(self)
        scores, extra = self.decoder(src_tokens, state=segment.past(), **kwargs)
        segment.leave(extra["state"])
        return scores, extra

    @classmethod
    def from_pretrained(
        cls, model_name_or_path, checkpoint_file="model.pt", data_name_or_path=".", **kwargs
    ):
        """Load a model behind fairseq's hub interface, which takes and returns text.

        Args:
            model_name_or_path: folder of the checkpoint.
            checkpoint_file: its name in the folder.
            data_name_or_path: data folder, relative to the model's folder if it starts with a
                period. If it has a manifest, text is tokenized as the data was. Each newline is
                ``</s>``.
            **kwargs: options that replace options of the checkpoint; ``bpe`` names another
                tokenizer.

        Raises:
            UserInputError: an option is unknown, or belongs to a tokenizer that is not used, or a
                file of the tokenizer would be fetched.
        """
        folder = str(model_name_or_path)
        data = str(data_name_or_path)
        options = kwargs
        if "bpe" not in kwargs:
            data_folder = data
            if data.startswith("."):  # fairseq then looks for it in the model's folder
                data_folder = str(Path(folder) / data)
            options = tokenizer_options(data_folder) | kwargs
        loaded = hub_utils.from_pretrained(folder, str(checkpoint_file), data, **options)
        check_hub_options(kwargs, loaded["args"])
        check_encoder_files(loaded["args"], Path(folder) / str(checkpoint_file))
        return HubInterface(loaded["args"], loaded["task"], loaded["models"])

    @classmethod
    def add_args(cls, parser):
        """Add the options of the model's dataclass to a parser.

        In fairseq, passing a flag whose default is True sets it to *False*, so that
        ``--share-decoder-input-output-embed`` would untie the embeddings. Here such a flag sets
        its option to True, and ``--no-…`` disables it.
        """
        for option in dataclasses.fields(cls.config):
            if option.default is True:
                parser.add_argument(
                    "--" + option.name.replace("_", "-"),
                    action=argparse.BooleanOptionalAction,
                    default=argparse.SUPPRESS,
                    help=option.metadata.get("help"),
                )
        for option in all_options().values():
            if "argument" in option.metadata:
                parser.add_argument(
                    "--" + option.name.replace("_", "-"),
                    type=option.metadata["argument"],
                    default=argparse.SUPPRESS,
                    metavar=option.metadata["metavar"],
                    help=cls.config.__dataclass_fields__[option.name].metadata["help"],
                )
        super().add_args(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build a model after validating its options.

        Raises:
            UserInputError: the options are inconsistent, or do not fit the task.
        """
        args = plain_options(args, cls.config)
        for width in ("decoder_input_dim", "decoder_output_dim"):
            if getattr(args, width) is None:
                setattr(args, width, args.decoder_embed_dim)
        if args.offload_activations:
            args.checkpoint_activations = True  # as in fairseq, offloading implies recomputing
        check_options(args)
        bind_dictionary(task)
        # The position method takes care of positions; fairseq's decoder must not add its own.
        args.no_token_positional_embeddings = True
        embed_tokens = cls.build_embedding(args, task.source_dictionary)
        model = cls(AlibiDecoder(args, task.target_dictionary, embed_tokens))
        for name, buffer in model.named_buffers():
            if name.endswith("_float_tensor"):
                # fairseq's adaptive input and softmax leave it as they find the memory, so that the
                # checkpoints of two equal training runs would differ in it.
                buffer.zero_()
        sequential = getattr(task, "is_sequential", False)
        if model.decoder.embed_positions.memory_length and not sequential:
            raise UserInputError(
                "A model with --mem-len needs contiguous segments. Add "
                "--task segment_language_modeling (fairseq-eval-lm also takes the task from its "
                "command line, not from the checkpoint)."
            )
        return model

    @classmethod
    def build_embedding(cls, args, dictionary):
        """Build adaptive or plain token embeddings.

        Args:
            args: options of the model.
            dictionary: dictionary, whose size is the number of embeddings.
        """
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
    """Return fairseq's options for the tokenizer of a data folder.

    They are empty for a tokenizer of words, or without a manifest.
    """
    folder = DataFolder.open(data)
    tokenizer = folder.tokenizer
    kind = tokenizer.get("kind")
    files = [str(path) for path in folder.tokenizer_files]
    if kind == "sentencepiece-bpe":
        return {"bpe": "sentencepiece", "sentencepiece_model": files[0]}
    if kind == "byte-level-bpe":
        return {"bpe": "gpt2", "gpt2_encoder_json": files[0], "gpt2_vocab_bpe": files[1]}
    if kind == "wordpiece":
        cased = not tokenizer["lower_case"]
        return {"bpe": "bert", "bpe_vocab_file": files[0], "bpe_cased": cased}
    return {}


def plain_options(args, config: type[AlibiLanguageModelConfig]) -> argparse.Namespace:
    """Return the options as plain values, since fairseq's enumeration types cannot be pickled."""
    options = argparse.Namespace()
    for field in dataclasses.fields(config):
        value = getattr(args, field.name)
        setattr(options, field.name, getattr(value, "value", value))
    return options


#: Options of ``transformer_lm`` that this model lacks.
UNSUPPORTED = ("character_embeddings", "base_layers", "decoder_layers_to_keep")


def check_options(args: argparse.Namespace) -> None:
    """Check that the options fit together.

    The position method and its options are checked when they are read.

    Raises:
        UserInputError: naming the option, what it must be, and its value.
    """

    def require(option: str, valid: bool, requirement: str) -> None:
        if not valid:
            flag = "--" + option.replace("_", "-")
            raise UserInputError(f"{flag} must be {requirement}, not {getattr(args, option)}.")

    scalings = f"one of {', '.join(SCORE_SCALINGS)}"
    require("score_scaling", args.score_scaling in SCORE_SCALINGS, scalings)
    separators = f"one of {', '.join(SEPARATORS)}"
    require("block_diagonal", args.block_diagonal in SEPARATORS, separators)
    require("normalization", args.normalization in NORMALIZATIONS, " or ".join(NORMALIZATIONS))
    require("ffn", args.ffn in FEED_FORWARDS, " or ".join(FEED_FORWARDS))
    heads = args.decoder_attention_heads
    key_value_heads = args.key_value_heads or heads
    divides = key_value_heads > 0 and heads % key_value_heads == 0
    require("key_value_heads", divides, f"a divisor of {heads} attention heads, or 0")
    width = args.decoder_embed_dim
    require("decoder_attention_heads", width % heads == 0, f"a divisor of the width, {width}")
    default = AlibiLanguageModelConfig.activation_fn
    has_effect = args.ffn != "swiglu" or args.activation_fn == default
    require("activation_fn", has_effect, f"{default} with --ffn swiglu, which uses SiLU")
    can_separate = args.mem_len == 0 or args.block_diagonal == "none"
    require("block_diagonal", can_separate, "none with --mem-len")
    for option in UNSUPPORTED:
        require(option, not getattr(args, option), "left out, since our models lack it")
    can_tie = not args.tie_adaptive_weights or can_tie_adaptive_weights(args)
    same_as_softmax = "left out unless adaptive input and softmax have equal bands"
    require("tie_adaptive_weights", can_tie, same_as_softmax)
    MethodSpec.from_options(args)
    check_backend(args.attention_backend)


def can_tie_adaptive_weights(args: argparse.Namespace) -> bool:
    """Return True if adaptive input and softmax have weights of the same shapes."""
    return (
        args.adaptive_input
        and args.adaptive_input_cutoff == args.adaptive_softmax_cutoff
        and args.adaptive_input_factor == args.adaptive_softmax_factor
        and args.decoder_input_dim == args.decoder_output_dim
    )


def register_named_size(name: str, config: type[AlibiLanguageModelConfig]) -> type:
    """Register the model that ``--arch NAME`` selects.

    fairseq registers one class per name, so each size is a subclass that differs in its options.

    Args:
        name: name of the architecture.
        config: dataclass of options, whose defaults are the size.

    Returns:
        The registered class.
    """
    size = type(name, (AlibiLanguageModel,), {"config": config, "__module__": __name__})
    return register_model(name, dataclass=config)(size)


# Module attributes, since pickle looks a class up by its name in its module.
alibi_lm_tiny = register_named_size("alibi_lm_tiny", TinyConfig)
alibi_lm_small = register_named_size("alibi_lm_small", SmallConfig)
alibi_lm_bookcorpus = register_named_size("alibi_lm_bookcorpus", BookCorpusConfig)
alibi_lm_wiki103 = register_named_size("alibi_lm_wiki103", Wiki103Config)
alibi_lm_1b3 = register_named_size("alibi_lm_1b3", LargeConfig)
alibi_lm_bloom = register_named_size("alibi_lm_bloom", BloomConfig)
alibi_lm_modern = register_named_size("alibi_lm_modern", ModernConfig)
alibi_lm_modern_tiny = register_named_size("alibi_lm_modern_tiny", ModernTinyConfig)
alibi_lm_modern_small = register_named_size("alibi_lm_modern_small", ModernSmallConfig)
alibi_lm_modern_bookcorpus = register_named_size(
    "alibi_lm_modern_bookcorpus", ModernBookCorpusConfig
)
alibi_lm_modern_wiki103 = register_named_size("alibi_lm_modern_wiki103", ModernWiki103Config)
alibi_lm_modern_1b3 = register_named_size("alibi_lm_modern_1b3", ModernLargeConfig)


class AdaptiveInput(FairseqAdaptiveInput):
    """Adaptive input with fairseq's parameters and values, without waiting for a GPU.

    fairseq selects the tokens of each band with a mask, and the host waits three times per band for
    their number. On a GPU this class computes every band for all tokens and selects the right one.
    The additional products are few compared with the products of one layer.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed tokens (B, T) as (B, T, C)."""
        if tokens.device.type == "cpu":
            return super().forward(tokens)
        return self.every_band(tokens)

    def every_band(self, tokens: Tensor) -> Tensor:
        """Embed tokens (B, T) as (B, T, C) without a choice that depends on their values."""
        result: Tensor | None = None
        first = 0
        for end, embed in zip(self.cutoff, self.embeddings, strict=True):
            inside = (tokens >= first) & (tokens < end)  # (B, T)
            indices = torch.where(inside, tokens - first, 0)
            band = embed(indices).to(self._float_tensor.dtype)  # (B, T, C)
            other_bands = 0 if result is None else result
            result = torch.where(inside.unsqueeze(-1), band, other_bands)
            first = end
        assert result is not None, "there is at least one band"
        return result
