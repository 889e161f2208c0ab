"""A folder of transformers as a checkpoint of this plugin: BLOOM, OPT, XGLM, GPT-NeoX.

fairseq's dictionaries begin with four symbols of their own, so a foreign vocabulary is renumbered:
its special tokens go there, all others follow. A folder that :mod:`.export` wrote holds the
dictionary itself and keeps its numbers.

Shapes: V entries of the dictionary, C model width.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq import models
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from ..checkpoints import read_checkpoint
from ..checkpoints.released import checkpoint_state, read_dictionary
from ..errors import BadInput
from ..files import atomic_folder
from ..results.schema import read_json
from .architectures import NATIVE, Architecture
from .conversion import TOLERANCE, compare

BY_TYPE = {architecture.model_type: architecture for architecture in NATIVE.values()}
#: Weights with one row per word.
BY_WORD = ("embed_tokens.weight", "output_projection.weight")


@dataclass(frozen=True)
class Vocabulary:
    """Attributes:
    dictionary: fairseq's, for the checkpoint.
    rows: for each of its entries the number of the token, or None where there is no such token.
    """

    dictionary: Dictionary
    rows: list[int | None]


@dataclass(frozen=True)
class ImportedModel:
    """Attributes:
    state: what ``torch.save`` writes.
    vocabulary: the checkpoint's.
    flags: options of ``fairseq-train`` that make the same model.
    difference: between the log-probabilities of both on random tokens, the largest.
    """

    state: dict
    vocabulary: Vocabulary
    flags: list[str]
    difference: float

    def save(self, out: Path) -> None:
        """Write ``checkpoint_best.pt`` and ``dict.txt`` into a new folder."""
        with atomic_folder(out) as folder:
            torch.save(self.state, folder / "checkpoint_best.pt")
            self.vocabulary.dictionary.save(str(folder / "dict.txt"))


def import_folder(folder: Path) -> ImportedModel:
    """Translate a model.

    Raises:
        BadInput: it is no such folder, a weight is missing, or our decoder has no such model.
    """
    architecture, config = read_config(folder)
    options = {"no_scale_embedding": True, **architecture.options(config)}
    model = read_model(folder, config).eval()
    options["share_decoder_input_output_embed"] = (
        model.get_input_embeddings().weight is model.get_output_embeddings().weight
    )
    vocabulary = read_vocabulary(folder, config)
    weights = model.state_dict()
    inner = {
        name.removeprefix(architecture.prefix): tensor
        for name, tensor in weights.items()
        if name.startswith(architecture.prefix)
    }
    ours = architecture.imported(
        options["decoder_layers"], options["decoder_attention_heads"], inner
    )
    ours["output_projection.weight"] = weights["lm_head.weight"]
    for name in BY_WORD:
        ours[name] = reordered(ours[name], vocabulary.rows)
    cfg, flags = configuration(options, config)
    decoder = build_decoder(cfg, vocabulary.dictionary, ours)
    difference = compare(decoder, Renumbered(model, vocabulary.rows), cfg.model.train_length)
    if not difference <= TOLERANCE:
        raise BadInput(
            f"The imported model gives other scores than {folder} (difference {difference:.1e}): "
            "its configuration asks for something that our decoder does not do."
        )
    return ImportedModel(
        state=checkpoint_state(
            cfg,
            {f"decoder.{name}": tensor for name, tensor in decoder.state_dict().items()},
            vocabulary.dictionary,
            criterion="CrossEntropyCriterion",
            optimizer="FairseqAdam",
        ),
        vocabulary=vocabulary,
        flags=flags,
        difference=difference,
    )


def read_config(folder: Path) -> tuple[Architecture, PreTrainedConfig]:
    """The architecture and the configuration in a folder; nothing in it is run."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadInput(f"{folder} holds no config.json; name a folder that save_pretrained wrote.")
    content = read_json(path)
    model_type = content.get("model_type") if isinstance(content, dict) else None
    if model_type not in BY_TYPE:
        names = ", ".join(architecture.name for architecture in BY_TYPE.values())
        raise BadInput(f"{folder} holds a model of type {model_type}; one of {names} is needed.")
    try:
        default = AutoConfig.for_model(model_type)
        # Any other key may ask for code: of attention kernels, quantisation or an adapter.
        known = {*default.to_dict(), *default.attribute_map, "n_embed"}
        kept = {key: value for key, value in content.items() if key in known and key[0] != "_"}
        return BY_TYPE[model_type], AutoConfig.for_model(**kept)
    except Exception as error:  # whatever transformers raises for values that cannot be
        raise BadInput(f"{path} is damaged ({' '.join(str(error).split())}).") from error


def read_model(folder: Path, config: PreTrainedConfig) -> PreTrainedModel:
    """The model in fp32 with all its weights, from safetensors or else from a pickle of values."""
    safe = any((folder / name).is_file() for name in ("model.safetensors", SAFE_INDEX))
    weights = {"use_safetensors": True} if safe else {"state_dict": read_pickles(folder)}
    with torch.device("meta"):
        model_class = type(AutoModelForCausalLM.from_config(config))
    try:
        model, found = model_class.from_pretrained(
            folder if safe else None,
            **weights,
            config=config,
            dtype=torch.float32,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:  # a damaged file makes safetensors and transformers raise anything
        reason = str(error).strip().partition("\n")[0]
        raise BadInput(f"The weights in {folder} cannot be read ({reason}).") from error
    for kind in ("missing_keys", "mismatched_keys", "unexpected_keys"):
        if found[kind]:
            name = sorted(map(str, found[kind]))[0]
            raise BadInput(
                f"The weights in {folder} do not fit its config.json ({kind.partition('_')[0]}: "
                f"{name}); fetch both again."
            )
    return model


SAFE_INDEX = "model.safetensors.index.json"
PICKLE, PICKLE_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"


def read_pickles(folder: Path) -> dict[str, Tensor]:
    """The weights of ``pytorch_model.bin`` or of its parts; only values are let in."""
    files = [PICKLE]
    if (folder / PICKLE_INDEX).is_file():
        index = json.loads((folder / PICKLE_INDEX).read_text(encoding="utf-8"))
        files = sorted({Path(name).name for name in index["weight_map"].values()})
    elif not (folder / PICKLE).is_file():
        raise BadInput(f"{folder} holds no weights (model.safetensors or {PICKLE}).")
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= read_checkpoint(folder / file)
    return weights


def read_vocabulary(folder: Path, config: PreTrainedConfig) -> Vocabulary:
    """The dictionary in the folder, or one that lists the tokens' numbers.

    Raises:
        BadInput: the dictionary has another size than the model.
    """
    if (folder / "dict.txt").is_file():
        dictionary = read_dictionary(folder / "dict.txt")
        if len(dictionary) != config.vocab_size:
            raise BadInput(
                f"{folder / 'dict.txt'} has {len(dictionary):,} entries and the model "
                f"{config.vocab_size:,}; use the dictionary of this model."
            )
        return Vocabulary(dictionary, list(range(len(dictionary))))
    dictionary = Dictionary()
    special: dict[int, int] = {}
    for symbol, number in (
        (dictionary.eos(), config.eos_token_id),
        (dictionary.pad(), config.pad_token_id),
        (dictionary.bos(), config.bos_token_id),
    ):
        known = isinstance(number, int) and 0 <= number < config.vocab_size
        if known and number not in special.values():
            special[symbol] = number
    rows = [special.get(symbol) for symbol in range(dictionary.nspecial)]
    for number in range(config.vocab_size):
        if number not in special.values():
            dictionary.add_symbol(str(number))
            rows.append(number)
    return Vocabulary(dictionary, rows)


def reordered(words: Tensor, rows: list[int | None]) -> Tensor:
    """(V, C) rows in the dictionary's order; zeros for symbols that the model does not know."""
    with_zeros = torch.cat([words, words.new_zeros(1, words.shape[1])])
    return with_zeros[[len(words) if row is None else row for row in rows]]


def configuration(options: dict, config: PreTrainedConfig):
    """fairseq's whole configuration, and the flags that ``fairseq-train`` needs for the same model."""
    dropouts = {
        "dropout": getattr(config, "dropout", getattr(config, "hidden_dropout", 0.0)),
        "attention_dropout": config.attention_dropout,
    }
    names = {
        "arch": "alibi_lm",
        "task": "language_modeling",
        "criterion": "cross_entropy",
        "optimizer": "adam",
        "lr_scheduler": "fixed",
        "max_tokens": options["tokens_per_sample"],
    }
    train_length = {"train_length": options["tokens_per_sample"]}
    namespace = argparse.Namespace(**names, **options, **dropouts, **train_length)
    flags = ["--arch", "alibi_lm"]
    for name, value in options.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags += [f"--{flag}"] * value
            if not value and name in (
                "share_decoder_input_output_embed",
                "decoder_normalize_before",
            ):
                flags.append(f"--no-{flag}")
        else:
            flags += [f"--{flag}", str(value)]
    return convert_namespace_to_omegaconf(namespace), flags


def build_decoder(cfg, dictionary: Dictionary, weights: dict[str, Tensor]) -> torch.nn.Module:
    """Our decoder with these weights."""
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    decoder = models.build_model(cfg.model, task).eval().decoder
    needed = decoder.state_dict()
    kept = {name: needed[name] for name in ("version",) if name in needed}
    decoder.load_state_dict({**weights, **kept}, strict=True)
    return decoder


class Renumbered:
    """A model of transformers that reads and scores a dictionary's numbers."""

    def __init__(self, model: PreTrainedModel, rows: list[int | None]):
        self._model = model
        self._known = torch.tensor([0 if row is None else row for row in rows])
        self._unknown = torch.tensor([row is None for row in rows])

    def __call__(self, tokens: Tensor):
        logits = self._model(self._known[tokens]).logits[..., self._known]
        return SimpleNamespace(logits=logits.masked_fill(self._unknown, 0.0))
