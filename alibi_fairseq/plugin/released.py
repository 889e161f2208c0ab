"""The authors' released WikiText-103 checkpoints as checkpoints of this plugin.

A fork of fairseq 1.0.0a0 wrote them (github.com/ofirpress/attention_with_linear_biases). The
options are an ``argparse.Namespace`` with the architecture's name. ALiBi is not among them, because
the fork had no other method. The state dict has a buffer of an unused sinusoidal module. All else
is fairseq's ``transformer_lm``, as in our models.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq import models
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from ..errors import UserInputError
from ..files import atomic_folder, open_input
from ..results.data_hashes import DICTIONARY_KEY, dictionary_digest
from .loading import check_finite, check_ties
from .option_validation import check_options, plain_values

ARCHITECTURE = "alibi_lm_wiki103"
#: Buffers of the fork's unused sinusoidal module in the state dict; nothing reads them.
LEFTOVERS = ("decoder.embed_positions._float_tensor", "decoder.embed_positions.weights")
#: Options that hold paths of the machine that trained the model.
PLACES = ("data", "save_dir", "user_dir", "tensorboard_logdir", "log_file", "restore_file")


def save_checkpoint(state: dict, dictionary: Dictionary, out: Path) -> None:
    """Write ``checkpoint_best.pt`` and ``dict.txt`` into a new folder.

    Raises:
        UserInputError: the folder is not empty.
    """
    with atomic_folder(out) as folder:
        torch.save(state, folder / "checkpoint_best.pt")
        dictionary.save(str(folder / "dict.txt"))


def read_dictionary(path: str | os.PathLike) -> Dictionary:
    """Read fairseq's dictionary file; raise UserInputError for a device or a pipe."""
    open_input(path).close()
    return Dictionary.load(str(path))


def import_released(
    state: dict, dictionary: Dictionary, source: str | os.PathLike = "The checkpoint"
) -> dict:
    """Translate a checkpoint of the authors' fork to what fairseq stores.

    Args:
        dictionary: the one the model was trained with.
        source: what to call the file in messages.

    Raises:
        UserInputError: it is no such checkpoint, the dictionary has another size, or a tensor is
            missing or left over.
    """
    used = {name: tensor for name, tensor in state["model"].items() if name not in LEFTOVERS}
    check_finite(state, source)
    cfg = translate_options(training_options(state))
    check_options(cfg, source)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = models.build_model(cfg.model, task)
    torch.nn.Module.load_state_dict(model, used)  # fairseq's would add what is missing
    check_ties(used, model, source)
    history = {"criterion_name": "AdaptiveLoss", "optimizer_name": "FairseqNAG"}
    if state.get("optimizer_history"):
        history.update(state["optimizer_history"][-1])
    return checkpoint_state(cfg, used, dictionary, history)


def training_options(state: dict) -> dict:
    """Return the options the model was trained with, without groups."""
    options = plain_values(state.get("args"))
    groups = plain_values(state.get("cfg"))
    if not options:
        options = {}
        for group in groups.values():
            if isinstance(group, dict):
                options.update(group)
        options["arch"] = (groups.get("model") or {}).get("_name")
    return options


def translate_options(options: dict) -> DictConfig:
    """Return fairseq's configuration for the same model under this plugin's name."""
    architecture = str(options.get("arch"))
    length = options.get("tokens_per_sample")
    if not architecture.startswith("transformer_lm"):
        raise UserInputError(
            f"The checkpoint's architecture is {architecture}, not transformer_lm_wiki103. Only "
            "the authors' ALiBi language models can be imported."
        )
    names = {
        "arch": ARCHITECTURE,
        "task": "language_modeling",
        "criterion": "adaptive_loss" if options.get("adaptive_softmax_cutoff") else "cross_entropy",
        "optimizer": "nag",
        "lr_scheduler": "cosine",
        "position_method": "alibi",
        "attention_backend": "auto",
        "train_length": length,
    }
    for name, value in options.items():
        if name not in PLACES and not name.startswith(("distributed_", "_")):
            names.setdefault(name, value)
    return convert_namespace_to_omegaconf(argparse.Namespace(**names))


def checkpoint_state(
    cfg: DictConfig, weights: dict[str, Tensor], dictionary: Dictionary, history: dict
) -> dict:
    """Return the checkpoint that fairseq stores of a model whose training starts from scratch.

    Args:
        history: ``criterion_name, optimizer_name`` and, if it has been trained, ``num_updates``.
    """
    return {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": weights,
        "criterion": None,
        "optimizer_history": [{"num_updates": 0, **history, "lr_scheduler_state": {}}],
        "task_state": {DICTIONARY_KEY: dictionary_digest(dictionary)},
        "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}},
    }
