"""Hashes of binary data and of dictionaries.

A model knows words by their index. Data binarized with another dictionary of the same size loads
and runs, and its perplexity is meaningless. The hash of the training dictionary is therefore kept
in the ``task_state`` that fairseq saves and loads with every checkpoint.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import UserInputError
from ..files import sha256_file, sha256_if_present

#: Key of the dictionary's hash in the checkpoint's ``task_state``.
DICTIONARY_KEY = "dictionary_sha256"

_OVERWRITE_FLAG = "#fairseq:overwrite"


class DataHashes(NamedTuple):
    """Hashes of the data of a training.

    Attributes:
        train: SHA-256 of the tokens of the training split (``train.bin``), by shard.
        train_lines: SHA-256 of its division into lines (``train.idx``), by shard.
        dictionary: :func:`symbols_sha256` of the dictionary.
        valid: :func:`data_sha256` of each validation split.
    """

    train: tuple[str, ...]
    train_lines: tuple[str, ...]
    dictionary: str
    valid: Mapping[str, str]

    @classmethod
    def of(
        cls, data: str | os.PathLike, train_subset: str = "train", valid_subsets: str = "valid"
    ) -> DataHashes:
        """Hash the data of a training.

        Args:
            data: fairseq's data argument.
            train_subset: fairseq's option.
            valid_subsets: fairseq's option, several separated by commas; missing splits are left
                out, because they need not exist with ``--disable-validation``.
        """
        train = []
        train_lines = []
        for folder in data_folders(data):
            train.append(sha256_file(folder / f"{train_subset}.bin"))
            train_lines.append(sha256_file(folder / f"{train_subset}.idx"))
        valid = {}
        for split in valid_subsets.split(","):
            if any((folder / f"{split}.bin").is_file() for folder in data_folders(data)):
                digest = data_sha256(data, [split])
                assert digest is not None, "a split was given"
                valid[split] = digest
        return cls(tuple(train), tuple(train_lines), dictionary_sha256(data), valid)


def data_sha256(data: str | os.PathLike, splits: Sequence[str]) -> str | None:
    """Return the SHA-256 of the binary files of splits, in their order; None without a split.

    If ``data`` joins several folders by ``:``, the files of all folders with the split are hashed.

    Raises:
        UserInputError: a split is in none of the folders.
    """
    for split in splits:
        if not _split_files(data, split):
            raise UserInputError(f"{data}: no split named {split!r} ({split}.idx and {split}.bin).")
    return data_sha256_if_present(data, splits)


def data_sha256_if_present(data: str | os.PathLike, splits: Sequence[str]) -> str | None:
    """Return :func:`data_sha256`, or None before all splits exist.

    Files are read again only when one of them has changed.
    """
    files: list[Path] = []
    for split in splits:
        split_files = _split_files(data, split)
        if not split_files:
            return None
        files += split_files
    return sha256_if_present(*files) if files else None


def _split_files(data: str | os.PathLike, split: str) -> list[Path]:
    """Return the binary files of a split that exist, of all folders."""
    files = []
    for folder in data_folders(data):
        for path in (folder / f"{split}.idx", folder / f"{split}.bin"):
            if path.is_file():
                files.append(path)
    return files


def data_folders(data: str | os.PathLike) -> list[Path]:
    """Return the folders of fairseq's data argument, which joins several by ``:``."""
    return [Path(folder) for folder in os.fspath(data).split(":") if folder]


def symbols_sha256(symbols: Iterable[str]) -> str:
    """Return the SHA-256 of a dictionary's symbols in order, without fairseq's special ones.

    Counts do not matter: two dictionaries with the same hash give every symbol the same index.
    """
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def dictionary_digest(dictionary) -> str:
    """Return :func:`symbols_sha256` of a ``fairseq.data.Dictionary``."""
    return symbols_sha256(dictionary.symbols[dictionary.nspecial :])


def dictionary_sha256(data: str | os.PathLike) -> str:
    """Return :func:`symbols_sha256` of the file ``dict.txt``, or of the one in a data folder."""
    path = Path(data)
    if not path.is_file():
        path = data_folders(data)[0] / "dict.txt"
    symbols = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip():
            entry = line.rstrip().removesuffix(f" {_OVERWRITE_FLAG}")
            symbol = entry.rsplit(" ", 1)[0]  # without its count; the symbol may contain spaces
            symbols.append(symbol)
    return symbols_sha256(symbols)


def bind_dictionary(task) -> None:
    """Check the task's dictionary against the checkpoint's, and record it in the task's state.

    This runs when a model is built. At that point, fairseq has loaded the state of a checkpoint to
    evaluate, but has not saved the state of a training run. A task without state is left unchanged.

    Raises:
        UserInputError: the checkpoint was trained with another dictionary.
    """
    state = getattr(task, "state", None)
    if state is None:
        return
    data_digest = dictionary_digest(task.source_dictionary)
    training_digest = state.state_dict.get(DICTIONARY_KEY, data_digest)
    if training_digest != data_digest:
        raise UserInputError(
            "The data's dictionary is not the one this checkpoint was trained with (their contents "
            f"differ, SHA-256 {data_digest[:12]}… and {training_digest[:12]}…), so its token IDs "
            "mean other words. Preprocess the text with the dict.txt of the training data "
            "(fairseq-preprocess --srcdict)."
        )
    state.merge_state_dict({DICTIONARY_KEY: data_digest})


def check_dictionary(state: dict, path: Path, data: Path) -> None:
    """Compare the dictionary next to a checkpoint with the data's if the checkpoint has no hash.

    Otherwise, :func:`bind_dictionary` compares them.

    Args:
        state: contents of the checkpoint.
        path: path of the checkpoint.
        data: data folder of the evaluation.

    Raises:
        UserInputError: the dictionaries differ.
    """
    reference = path.with_name("dict.txt")
    if DICTIONARY_KEY in state.get("task_state", {}) or not reference.is_file():
        return
    if dictionary_sha256(reference) != dictionary_sha256(data):
        raise UserInputError(
            f"The data was binarized with a different dictionary than '{path}' was trained with. "
            f"Preprocess the text with fairseq-preprocess --srcdict '{reference}'."
        )
