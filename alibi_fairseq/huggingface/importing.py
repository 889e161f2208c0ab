"""Import of models of transformers as checkpoints of this plugin.

fairseq's dictionaries begin with four special symbols, so token IDs change: special tokens of the
imported model come first, all others follow. A folder written by :mod:`.export` contains the
dictionary and keeps its token IDs.

Shapes: V dictionary size, C model width.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import models
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import Tensor
from torch.nn.functional import pad
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from ..errors import UserInputError
from ..files import read_json
from ..models.config import AlibiLanguageModelConfig
from ..plugin.released import checkpoint_state, read_dictionary, save_checkpoint
from .architectures import ACTIVATIONS, Architecture
from .configuration_alibi_lm import AlibiLmConfig
from .conversion import compare_scores
from .model_folder import check_weights
from .modeling_alibi_lm import AlibiLmForCausalLM
from .native_architectures import ARCHITECTURES
from .own_format import AlibiLm, own_options
from .rope_parameters import rotary_options
from .unsupported import not_in_fairseq

BY_TYPE = {architecture.model_type: architecture for architecture in (*ARCHITECTURES, AlibiLm())}
#: Options of fairseq-train by field of :class:`AlibiLmConfig`.
OPTIONS = {
    "position_method": "position_method",
    "hidden_size": "decoder_embed_dim",
    "embedding_width": "decoder_input_dim",
    "output_width": "decoder_output_dim",
    "intermediate_size": "decoder_ffn_embed_dim",
    "num_hidden_layers": "decoder_layers",
    "num_attention_heads": "decoder_attention_heads",
    "normalize_before": "decoder_normalize_before",
    "embedding_norm": "layernorm_embedding",
    "tie_word_embeddings": "share_decoder_input_output_embed",
    "train_length": "tokens_per_sample",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
}
#: Options of the block, by field. They are only named where they differ from the defaults.
BLOCK_OPTIONS = {
    "normalization": "normalization",
    "normalize_queries_keys": "normalize_queries_keys",
    "linear_biases": "linear_biases",
    "rms_norm_eps": "rms_norm_eps",
}
#: Options that are on by default.
ON_BY_DEFAULT = ("share_decoder_input_output_embed", "decoder_normalize_before", "linear_biases")
#: Keys of config.json that are safe to read although transformers' classes do not list them.
MORE_KEYS = (
    "n_embed",
    "seq_length",
    "_remove_final_layer_norm",
    # Rotation of GPT-NeoX in the format of transformers 4.
    "rotary_pct",
    "rotary_emb_base",
    "rope_scaling",
    "rope_theta",
    "partial_rotary_factor",
)


def import_folder(folder: Path, out: Path) -> tuple[list[str], float]:
    """Write ``checkpoint_best.pt`` and ``dict.txt`` into a new folder.

    Returns:
        Options of fairseq-train that make the same model, and the largest difference between the
        log-probabilities of both on random tokens.

    Raises:
        UserInputError: if the folder is invalid or incomplete, or our decoder has no such model.
    """
    architecture, config = read_config(folder)
    description = architecture.describe_config(config)
    model = read_model(folder, config).eval()
    description.tie_word_embeddings = (
        model.get_input_embeddings().weight is model.get_output_embeddings().weight
    )
    dictionary, token_ids = read_vocabulary(folder, config)
    missing = token_ids.eq(-1).nonzero().flatten().tolist()
    description.excluded_symbols = sorted({*(description.excluded_symbols or ()), *missing})
    ours = architecture.import_weights(description, model.state_dict())
    for name in ("embed_tokens.weight", "output_projection.weight"):
        # These have one row per token. A last row of zeros is added, which index −1 selects.
        ours[name] = pad(ours[name], (0, 0, 0, 1))[token_ids]
    cfg, flags = configuration(description)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    decoder = models.build_model(cfg.model, task).eval().decoder
    initial_state = decoder.state_dict()
    if "version" in initial_state:
        ours["version"] = initial_state["version"]
    decoder.load_state_dict(ours, strict=True)

    def scores(tokens: Tensor) -> Tensor:
        logits = model(token_ids[tokens]).logits
        # Symbols without a token ID have no probability: index −1 selects the added −inf.
        return pad(logits, (0, 1), value=-torch.inf)[..., token_ids]

    difference = compare_scores(decoder, scores, description.train_length)
    weights = {f"decoder.{name}": tensor for name, tensor in decoder.state_dict().items()}
    history = {"criterion_name": "CrossEntropyCriterion", "optimizer_name": "FairseqAdam"}
    save_checkpoint(checkpoint_state(cfg, weights, dictionary, history), dictionary, out)
    return flags, difference


def read_config(folder: Path) -> tuple[Architecture, PreTrainedConfig]:
    """Read the architecture and the configuration of a folder without running code from it."""
    path = folder / "config.json"
    content = read_json(path)
    model_type = None
    if isinstance(content, dict):
        model_type = content.get("model_type")
    if model_type not in BY_TYPE:
        names = ", ".join(architecture.name for architecture in BY_TYPE.values())
        raise UserInputError(
            f"{folder} has a model of type {model_type}. Only {names} can be imported."
        )
    default = make_config(model_type)
    # Any other key may request code: attention kernels, quantization, or an adapter.
    known_keys = set(MORE_KEYS)
    for key in (*default.to_dict(), *default.attribute_map):
        if not key.startswith("_"):
            known_keys.add(key)
    values = {key: value for key, value in content.items() if key in known_keys}
    return BY_TYPE[model_type], make_config(**values)


def make_config(model_type: str, **values: Any) -> PreTrainedConfig:
    """Return a configuration of transformers, or of our own format."""
    if model_type == AlibiLmConfig.model_type:
        return AlibiLmConfig(**values)
    return AutoConfig.for_model(model_type, **values)


def read_model(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """Read the model in fp32, from safetensors or else from a pickle with ``weights_only``."""
    model_class: Any = AlibiLmForCausalLM
    if not isinstance(config, AlibiLmConfig):
        model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    model, loading_info = model_class.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        local_files_only=True,
        weights_only=True,
        output_loading_info=True,
    )
    check_weights(folder, loading_info)
    return model


def read_vocabulary(folder: Path, config: PreTrainedConfig) -> tuple[Dictionary, Tensor]:
    """Read the dictionary of a folder, or create one whose symbols are the token IDs.

    Returns:
        The dictionary, and the token ID in the imported model of each of its entries, (V,). It is
        −1 for entries that the model lacks.
    """
    path = folder / "dict.txt"
    if path.is_file():
        dictionary = read_dictionary(path)
        return dictionary, torch.arange(config.vocab_size)
    end_of_text = config.eos_token_id
    if isinstance(end_of_text, list):
        end_of_text = end_of_text[0]  # in Llama 3 Instruct, before the ends of message and turn
    dictionary = Dictionary()
    token_ids = [-1] * dictionary.nspecial
    special_tokens = (
        (dictionary.eos(), end_of_text),
        (dictionary.pad(), config.pad_token_id),
        (dictionary.bos(), config.bos_token_id),
    )
    for symbol, token_id in special_tokens:
        if token_id in range(config.vocab_size) and token_id not in token_ids:
            token_ids[symbol] = token_id
    special_ids = set(token_ids)
    for token_id in range(config.vocab_size):
        if token_id not in special_ids:
            dictionary.add_symbol(str(token_id))
            token_ids.append(token_id)
    return dictionary, torch.tensor(token_ids)


def configuration(description: AlibiLmConfig) -> tuple[Any, list[str]]:
    """Return the configuration of fairseq and the ``fairseq-train`` flags of a described model."""
    options = {name: getattr(description, field) for field, name in OPTIONS.items()}
    if description.rotary_parameters is not None:
        options |= rotary_options(description.rotary_parameters, description.train_length)
    options |= block_options(description)
    options |= own_options(description)
    options["no_decoder_final_norm"] = not description.final_norm
    options["no_scale_embedding"] = description.embedding_scale == 1
    if description.excluded_symbols:
        options["excluded_symbols"] = ",".join(map(str, description.excluded_symbols))
    training = {
        "arch": "alibi_lm",
        "task": "language_modeling",
        "criterion": "cross_entropy",
        "optimizer": "adam",
        "lr_scheduler": "fixed",
        "max_tokens": description.train_length,
        "train_length": description.train_length,
    }
    cfg = convert_namespace_to_omegaconf(argparse.Namespace(**training, **options))
    flags = ["--arch", "alibi_lm"]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if not isinstance(value, bool):
            flags += [f"--{flag}", str(value)]
        elif value:
            flags.append(f"--{flag}")
        elif name in ON_BY_DEFAULT:
            flags.append(f"--no-{flag}")
    return cfg, flags


def block_options(description: AlibiLmConfig) -> dict[str, Any]:
    """Return the options of a model's block, without default values except for the activation.

    Raises:
        UserInputError: fairseq does not have its activation function.
    """
    options: dict[str, Any] = {}
    for field, name in BLOCK_OPTIONS.items():
        value = getattr(description, field)
        if value != getattr(AlibiLanguageModelConfig, name):
            options[name] = value
    if description.num_key_value_heads != description.num_attention_heads:
        options["key_value_heads"] = description.num_key_value_heads
    if description.gated_ffn:
        options["ffn"] = "swiglu"
        return options
    if description.hidden_act not in ACTIVATIONS:
        raise not_in_fairseq(f"hidden_act = {description.hidden_act}")
    options["activation_fn"] = ACTIVATIONS[description.hidden_act]
    return options
