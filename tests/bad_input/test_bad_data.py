"""Data folders that are incomplete, of another format, or of another dictionary."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from bad_input_cases import eval_command
from commands import SHORT
from conftest import damage_index
from fairseq.data import Dictionary, indexed_dataset

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.results.data_folder import DataFolder


def token_out_of_range(data: Path) -> None:
    """Replace tokens of two splits by one that the dictionary does not have."""
    for split in ("valid", "train"):
        tokens = np.fromfile(data / f"{split}.bin", np.uint16)
        tokens[3:] = 60_000
        tokens.tofile(data / f"{split}.bin")


def test_incomplete_data_is_rejected(data_bin, checkpoint, tmp_path, refuse):
    data = shutil.copytree(data_bin, tmp_path / "data")
    for path in data.glob("*.bin"):
        path.write_bytes(path.read_bytes()[:-2])
    assert ".bin was not copied completely" in refuse(
        *eval_command(data, checkpoint, tmp_path / "out.json")
    )
    assert ".bin was not copied completely" in refuse(
        "train", data, *SHORT, "--save-dir", tmp_path / "run"
    )
    assert not [*tmp_path.glob("out.json"), *tmp_path.rglob("checkpoint_last.pt")]


def test_damaged_index_is_rejected(data_bin, checkpoint, tmp_path, refuse):
    """Earlier versions and fairseq with NumPy 2 write such an index for more than 2 GiB of data."""
    data = shutil.copytree(data_bin, tmp_path / "data")
    for path in data.glob("*.idx"):
        damage_index(path)
    assert ".idx is damaged" in refuse(*eval_command(data, checkpoint, tmp_path / "out.json"))
    assert ".idx is damaged" in refuse("train", data, *SHORT, "--save-dir", tmp_path / "run")


def test_token_out_of_range_is_rejected_before_the_model(data_bin, tmp_path):
    """fairseq's adaptive input leaves the embedding of such a token as it finds the memory."""
    data = shutil.copytree(data_bin, tmp_path / "data")
    token_out_of_range(data)
    with pytest.raises(UserInputError, match="'valid' .* token ID beyond"):
        load_split(DataFolder.open(data), "valid", load_dictionary(data))


def test_other_formats_are_rejected(tmp_path):
    prefix = str(tmp_path / "valid")
    builder = indexed_dataset.make_builder(f"{prefix}.bin", "cached")
    builder.add_item(torch.arange(3))
    builder.finalize(f"{prefix}.idx")
    with pytest.raises(UserInputError, match="format 'cached'"):
        indexed_dataset.make_dataset(prefix, "cached")


def test_dictionary_of_different_size_is_rejected(data_bin, checkpoint, tmp_path, refuse):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    dictionary.add_symbol("more")
    dictionary.save(str(tmp_path / "dict.txt"))
    assert "dictionary" in refuse("eval-lm", tmp_path, "--path", checkpoint, "--cpu")
