"""What the plan of a run depends on in the binary data."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..files import sha256_if_present
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_sha256_if_present
from .corpora import data_folder
from .schema import ExperimentConfig, Model
from .training_flags import users_flags


@dataclass(frozen=True)
class DataFacts:
    """What is known of a data folder. Hashes are None before the files exist.

    Attributes:
        train_sha256: hash of the training split.
        dictionary_sha256: hash of the dictionary.
        valid_tokens: number of tokens of the validation split; None if it is unknown.
        valid_sha256: hash of validation splits by their names (:func:`validation_splits`).
    """

    train_sha256: str | None = None
    dictionary_sha256: str | None = None
    valid_tokens: int | None = None
    valid_sha256: Mapping[tuple[str, ...], str | None] = field(default_factory=dict)


UNPREPARED = DataFacts()


def read_data(config: ExperimentConfig, folder: Path) -> dict[Path, DataFacts]:
    """Return what is known of the data of each model.

    Args:
        folder: output folder of the comparison.
    """
    splits: dict[Path, set[tuple[str, ...]]] = {}
    for model in config.all_models():
        data = data_folder(model.corpus, model.train_length, folder)
        splits.setdefault(data, set()).add(validation_splits(model))
    return {data: _read_facts(data, names) for data, names in splits.items()}


def _read_facts(data: Path, validated: set[tuple[str, ...]]) -> DataFacts:
    """Return what is known of a data folder.

    Args:
        validated: the splits that each run is validated on, by name.
    """
    valid_tokens = None
    manifest = DataFolder.open(data).manifest
    if manifest is not None and "valid" in manifest["splits"]:
        valid_tokens = manifest["splits"]["valid"]["tokens"]
    return DataFacts(
        train_sha256=sha256_if_present(data / "train.bin"),
        dictionary_sha256=sha256_if_present(data / "dict.txt"),
        valid_tokens=valid_tokens,
        valid_sha256={names: data_sha256_if_present(data, names) for names in validated},
    )


def validation_splits(model: Model) -> tuple[str, ...]:
    """Return the names of the splits that a training is validated on."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--valid-subset", default="valid")
    known, _ = parser.parse_known_args(users_flags(model))
    return tuple(known.valid_subset.split(","))
