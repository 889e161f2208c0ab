"""Small models with random weights, built as in ``fairseq-train``."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.dataclass.configs import CommonConfig
from fairseq.tasks.language_modeling import LanguageModelingConfig
from omegaconf import OmegaConf, open_dict
from torch import Tensor

FIRST_WORD = 4  # after fairseq's four special symbols


def small_dictionary(words: int) -> Dictionary:
    """Return a dictionary with a number of words and fairseq's four special symbols."""
    dictionary = Dictionary()
    for word in range(words):
        dictionary.add_symbol(f"w{word}")
    return dictionary


def random_tokens(batch: int, length: int, words: int = 60) -> Tensor:
    """Return random words, (B, T)."""
    return torch.randint(FIRST_WORD, FIRST_WORD + words, (batch, length))


def build_model(*flags: str, words: int = 60, tokens_per_sample: int = 32, sequential=False):
    """Build a model like ``fairseq-train`` with these flags.

    A model with ``--mem-len`` needs a ``sequential`` task, which hands its state on.
    """
    dictionary = small_dictionary(words)
    task = SimpleNamespace(
        source_dictionary=dictionary, target_dictionary=dictionary, is_sequential=sequential
    )
    command = ["data", "--task", "language_modeling", "--cpu"]
    command += ["--tokens-per-sample", str(tokens_per_sample), *flags]
    parsed = options.parse_args_and_arch(options.get_training_parser(), command)
    # convert_namespace_to_omegaconf would start hydra, which takes most of a second.
    sections = {
        "model": models.MODEL_DATACLASS_REGISTRY[parsed.arch],
        "task": LanguageModelingConfig,
        "common": CommonConfig,
    }
    values = {name: section.from_namespace(parsed) for name, section in sections.items()}
    config = OmegaConf.create(values)
    with open_dict(config):
        config.model._name = parsed.arch
    return models.build_model(config.model, task)
