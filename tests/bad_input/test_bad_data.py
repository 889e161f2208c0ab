"""Damaged data folders: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from bad_input_cases import eval_command, mostly_slow, without
from commands import SHORT
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


def rewrite(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return a function that changes the bytes of all matching files."""

    def damage(data: Path) -> None:
        for path in data.glob(pattern):
            path.write_bytes(change(path.read_bytes()))

    return damage


#: Damage to a data folder, and the file that the message names.
DATA = {
    "half of the numbers": (rewrite("*.bin", lambda b: b[: len(b) // 2]), ".bin"),
    "a token out of range": (token_out_of_range, "dict"),
    "an index that is cut off": (rewrite("*.idx", lambda b: b[:40]), ".idx"),
    "no counts": (rewrite("dict.txt", lambda b: b.replace(b" ", b"-")), "dict.txt"),
    "no index": (rewrite("*.idx", lambda b: b""), ""),
    "floats": (rewrite("*.idx", lambda b: b[:17] + b"\x06" + b[18:]), ".idx"),
    "a later version": (rewrite("*.idx", lambda b: b[:9] + b"\x07" + b[10:]), ".idx"),
    "a word twice": (rewrite("dict.txt", lambda b: b + b.splitlines()[0]), "dict.txt"),
    "latin-1": (rewrite("dict.txt", lambda b: "n\u00e4 1\n".encode("latin-1") + b), "dict.txt"),
    "a blank line": (rewrite("dict.txt", lambda b: b"\n" + b), "dict.txt"),
}


@pytest.mark.parametrize("name", mostly_slow(DATA, 2))
def test_corrupted_data_is_rejected(data_bin, checkpoint, tmp_path, refuse, name):
    data = shutil.copytree(data_bin, tmp_path / "data")
    damage, named = DATA[name]
    damage(data)
    assert named in refuse(*eval_command(data, checkpoint, tmp_path / "out.json"))
    assert named in refuse("train", data, *SHORT, "--save-dir", tmp_path / "run")
    assert not [*tmp_path.glob("out.json"), *tmp_path.rglob("checkpoint_last.pt")]


def test_token_out_of_range_is_rejected_before_the_model(data_bin, tmp_path):
    """fairseq's adaptive input leaves the embedding of such a token as it finds the memory."""
    data = shutil.copytree(data_bin, tmp_path / "data")
    token_out_of_range(data)
    with pytest.raises(UserInputError, match="'valid' .* token ID beyond"):
        load_split(DataFolder.open(data), "valid", load_dictionary(data))


@pytest.mark.parametrize("position", [-8, 10**6])
def test_index_past_the_end_is_rejected(tmp_path, position):
    """fairseq would read beyond the end of the tokens without an error."""
    prefix = str(tmp_path / "valid")
    for kind in ("cached", "mmap"):
        builder = indexed_dataset.make_builder(f"{prefix}.bin", kind)
        for size in (3, 4):
            builder.add_item(torch.arange(size))
        builder.finalize(f"{prefix}.idx")
        if kind == "cached":
            with pytest.raises(UserInputError, match="format 'cached'"):
                indexed_dataset.make_dataset(prefix, kind)
    assert indexed_dataset.make_dataset(prefix, kind).sizes.tolist() == [3, 4]
    with open(f"{prefix}.idx", "r+b") as file:
        file.seek(-16, os.SEEK_END)  # position of the last line
        file.write(np.int64(position).tobytes())
    with pytest.raises(UserInputError, match="valid.idx"):
        indexed_dataset.make_dataset(prefix, kind)


def test_dictionary_of_different_size_is_rejected(data_bin, checkpoint, tmp_path, refuse):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    dictionary.add_symbol("more")
    dictionary.save(str(tmp_path / "dict.txt"))
    assert "dictionary" in refuse("eval-lm", tmp_path, "--path", checkpoint, "--cpu")
    # A checkpoint without the dictionary: the shapes of the weights differ.
    torch.save(
        without(torch.load(checkpoint, weights_only=True), "task_state"), tmp_path / "other.pt"
    )
    message = refuse("eval-lm", tmp_path, "--path", tmp_path / "other.pt", "--cpu")
    assert "dictionary" in message
    assert "embed_tokens" in message
