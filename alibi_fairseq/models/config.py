"""Options of the ``alibi_lm`` models.

They are fairseq's options of ``transformer_lm`` and the options of this plugin. A named size is a
dataclass that only changes defaults. Each is registered as a separate model, so ``--arch NAME`` and
YAML ``model: {_name: NAME}`` use the same definition; YAML would ignore an architecture function.
fairseq inspects the types of the fields, so annotations must not be strings here.
"""

# ruff: noqa: UP045 (fairseq's parser knows Optional[int] but not int | None)

from collections.abc import Iterable
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Optional

from fairseq.models.transformer_lm import TransformerLanguageModelConfig
from omegaconf import II

from ..attention import BACKENDS
from ..blocks import FEED_FORWARDS, NORMALIZATIONS
from ..blocks.normalization import EPS
from ..positions import METHODS, is_plugin_method, method_options, methods_with, plain_type


def with_method_options(config: type, methods: Iterable[str]) -> type:
    """Return a subclass of a dataclass that also has the options of position methods.

    Options that it already has, such as options that a method inherits from another, are not added.
    """
    existing = config.__dataclass_fields__  # type: ignore[attr-defined]
    added = {}
    for method in methods:
        for option in method_options(method).values():
            if option.name in existing:
                continue
            readers = ", ".join(methods_with(option.name))
            text = f"{readers}: {option.metadata.get('help', 'option of a plugin')}"
            default = field(default=option.default, metadata={"help": text})
            added[option.name] = (option.name, plain_type(option), default)
    namespace = {"__module__": config.__module__, "__doc__": config.__doc__}
    return make_dataclass(config.__name__, added.values(), bases=(config,), namespace=namespace)


#: Position methods of this package. Plugins may have registered others.
OWN_METHODS = [method for method in METHODS if not is_plugin_method(method)]
_ConfigWithMethods: Any = with_method_options(TransformerLanguageModelConfig, OWN_METHODS)


@dataclass
class AlibiLanguageModelConfig(_ConfigWithMethods):
    """Defaults of ``alibi_lm``: 6 layers, width 512, 8 heads, pre-norm, tied embeddings."""

    position_method: str = field(
        default="alibi",
        metadata={
            "help": f"how the model represents token positions: one of {', '.join(METHODS)}; "
            "several, separated by commas, are repeated over the layers"
        },
    )
    attention_backend: str = field(
        default="auto",
        metadata={"help": f"how attention is computed: auto, {', '.join(BACKENDS)}"},
    )
    compile_layers: bool = field(
        default=False,
        metadata={"help": "compile the decoder layers, except for attention, in training"},
    )
    score_scaling: str = field(
        default="none",
        metadata={
            "help": "multiply the queries by the logarithm of the number of visible keys, with any "
            "position method: none, logn (relative to the logarithm of the largest number of keys "
            "in training, and never below 1), or ssmax (times a factor learned for every head and "
            "layer)"
        },
    )
    attention_window: str = field(
        default="0",
        metadata={
            "help": "attention window in tokens, with any position method; 0: unlimited; several, "
            "separated by commas, are repeated over the layers"
        },
    )
    block_diagonal: str = field(
        default="none",
        metadata={
            "help": "attend to the token's own document only: none, eos (every </s> separates "
            "documents), or empty_line (two consecutive </s> do, as in complete_doc)"
        },
    )
    normalization: str = field(
        default="layer",
        metadata={"help": f"type of all normalization layers: {' or '.join(NORMALIZATIONS)}"},
    )
    ffn: str = field(
        default="mlp",
        metadata={
            "help": f"feed-forward network: {' or '.join(FEED_FORWARDS)}; mlp has two linear "
            "layers with --activation-fn between them, swiglu a third one as a gate"
        },
    )
    key_value_heads: int = field(
        default=0,
        metadata={
            "help": "number of key and value heads, each shared by a group of query heads; 0: as "
            "many as query heads"
        },
    )
    normalize_queries_keys: bool = field(
        default=False,
        metadata={"help": "RMSNorm of each query and key head, before positions act on them"},
    )
    linear_biases: bool = field(
        default=True,
        metadata={
            "help": "use biases in the linear layers of attention and the feed-forward network "
            "(default: depends on --arch)"
        },
    )
    rms_norm_eps: float = field(
        default=EPS,
        metadata={"help": "term added to the mean square in every RMSNorm"},
    )
    excluded_symbols: str = field(
        default="none",
        metadata={
            "help": "dictionary indices that are never predicted, such as 1,3 (set by import-hf "
            "for fairseq's symbols that the imported model lacks)"
        },
    )
    # The training length has a separate name, since the authors' evaluation commands override
    # tokens_per_sample and max_target_positions.
    train_length: int = II("task.tokens_per_sample")
    # Likewise the seed of the training, which determines random slopes.
    train_seed: int = II("common.seed")
    # Likewise the numbers that limit the keys in training, for the scaling of scores.
    train_attention_window: str = II(".attention_window")
    train_mem_len: int = II(".mem_len")

    decoder_normalize_before: bool = True
    share_decoder_input_output_embed: bool = True
    decoder_input_dim: Optional[int] = field(
        default=None, metadata={"help": "input embedding width (default: decoder_embed_dim)"}
    )
    decoder_output_dim: Optional[int] = field(
        default=None, metadata={"help": "output embedding width (default: decoder_embed_dim)"}
    )


@dataclass
class TinyConfig(AlibiLanguageModelConfig):
    """For demonstrations and tests: 3 layers, width 128; trains in minutes on two CPU cores."""

    decoder_layers: int = 3
    decoder_embed_dim: int = 128
    decoder_ffn_embed_dim: int = 512


@dataclass
class SmallConfig(AlibiLanguageModelConfig):
    """For a single GPU: 12 layers, width 768, 12 heads."""

    decoder_layers: int = 12
    decoder_embed_dim: int = 768
    decoder_ffn_embed_dim: int = 3072
    decoder_attention_heads: int = 12


@dataclass
class BookCorpusConfig(AlibiLanguageModelConfig):
    """The paper's 16-layer model with a tied softmax over a small vocabulary (appendix A.3)."""

    decoder_layers: int = 16
    decoder_embed_dim: int = 1024
    decoder_ffn_embed_dim: int = 4096
    dropout: float = 0.3
    attention_dropout: float = 0.1
    activation_dropout: float = 0.1
    no_decoder_final_norm: bool = True


@dataclass
class Wiki103Config(BookCorpusConfig):
    """The paper's WikiText-103 model (section 2.1): adaptive input and softmax, all tied.

    246,933,504 parameters with the dictionary of 267,744 entries.
    """

    share_decoder_input_output_embed: bool = False
    adaptive_input: bool = True
    adaptive_input_cutoff: Optional[str] = "20000,60000"
    adaptive_softmax_cutoff: Optional[str] = "20000,60000"
    adaptive_softmax_dropout: float = 0.2
    tie_adaptive_weights: bool = True
    tie_adaptive_proj: bool = True


@dataclass
class BloomConfig(AlibiLanguageModelConfig):
    """The layout of BLOOM (BigScience 2022) at the size of its smallest release, BLOOM-560m.

    ``alibi-fairseq export`` makes it a BLOOM model, which inference servers know.
    """

    decoder_layers: int = 24
    decoder_embed_dim: int = 1024
    decoder_ffn_embed_dim: int = 4096
    decoder_attention_heads: int = 16
    dropout: float = 0.0
    layernorm_embedding: bool = True
    activation_fn: str = "gelu_accurate"
    no_scale_embedding: bool = True


@dataclass
class LargeConfig(AlibiLanguageModelConfig):
    """The paper's 1.3B model (section 4.2). Its dropout is not published; 0 is our choice."""

    decoder_layers: int = 25
    decoder_embed_dim: int = 2048
    decoder_ffn_embed_dim: int = 8192
    decoder_attention_heads: int = 16
    dropout: float = 0.0


@dataclass
class ModernBlock:
    """Parts of a block as in Llama. Named sizes add the widths and the key and value heads.

    Their feed-forward width is about two thirds of that of the plain size, a multiple of 32, so
    that feed-forward networks have about as many parameters. Four query heads share a key and value
    head.
    """

    normalization: str = "rms"
    ffn: str = "swiglu"
    linear_biases: bool = False
    no_decoder_final_norm: bool = False


@dataclass
class ModernConfig(ModernBlock, AlibiLanguageModelConfig):
    """``alibi_lm`` with the modern block."""

    decoder_ffn_embed_dim: int = 1376
    key_value_heads: int = 2


@dataclass
class ModernTinyConfig(ModernBlock, TinyConfig):
    """``alibi_lm_tiny`` with the modern block."""

    decoder_ffn_embed_dim: int = 352
    key_value_heads: int = 2


@dataclass
class ModernSmallConfig(ModernBlock, SmallConfig):
    """``alibi_lm_small`` with the modern block."""

    decoder_ffn_embed_dim: int = 2048
    key_value_heads: int = 3


@dataclass
class ModernBookCorpusConfig(ModernBlock, BookCorpusConfig):
    """``alibi_lm_bookcorpus`` with the modern block and a final norm."""

    decoder_ffn_embed_dim: int = 2720
    key_value_heads: int = 2


@dataclass
class ModernWiki103Config(ModernBlock, Wiki103Config):
    """``alibi_lm_wiki103`` with the modern block and a final norm."""

    decoder_ffn_embed_dim: int = 2720
    key_value_heads: int = 2


@dataclass
class ModernLargeConfig(ModernBlock, LargeConfig):
    """``alibi_lm_1b3`` with the modern block."""

    decoder_ffn_embed_dim: int = 5472
    key_value_heads: int = 4
