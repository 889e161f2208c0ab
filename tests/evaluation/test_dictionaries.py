"""Data binarized with another dictionary is rejected."""

from __future__ import annotations

import shutil

import pytest
import torch
from commands import in_process
from conftest import small_dictionary

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.data_hashes import DICTIONARY_KEY, dictionary_digest, dictionary_sha256


@pytest.fixture
def other_data(trained, tmp_path):
    """Return a copy of the data folder in whose dictionary two words are exchanged."""
    folder = shutil.copytree(trained.data, tmp_path / "other")
    lines = (folder / "dict.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    lines[7], lines[8] = lines[8], lines[7]
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def without_dictionary_hash(checkpoint, path):
    """Save a copy of a checkpoint without the hash, as plain fairseq would write it."""
    state = torch.load(checkpoint, weights_only=True)
    del state["task_state"][DICTIONARY_KEY]
    path.parent.mkdir(exist_ok=True)
    torch.save(state, path)
    return path


def test_checkpoint_rejects_data_of_other_dictionary(sweep, trained, other_data, tmp_path):
    state = torch.load(trained("alibi"), weights_only=True)
    assert state["task_state"][DICTIONARY_KEY] == dictionary_sha256(trained.data)
    with pytest.raises(UserInputError, match="not the one this checkpoint was trained with"):
        sweep(data=other_data)
    assert not (tmp_path / "results.json").exists()
    with pytest.raises(UserInputError, match="not the one this checkpoint was trained with"):
        in_process("eval_lm", other_data, "--path", trained("alibi"), "--cpu")


def test_checkpoint_without_hash_uses_nearby_dictionary(sweep, trained, other_data, tmp_path):
    checkpoint = without_dictionary_hash(trained("alibi"), tmp_path / "foreign" / "model.pt")
    shutil.copy(trained.data / "dict.txt", checkpoint.parent)
    with pytest.raises(UserInputError, match="a different dictionary"):
        sweep(checkpoint, data=other_data)
    assert sweep(checkpoint)


@pytest.mark.parametrize("name", ["alibi", "alibi-adaptive"])
def test_eval_fails_with_dictionary_of_another_size(trained, tmp_path, fail, name):
    """Without the recorded hash, PyTorch notices that the embeddings do not fit."""
    data = shutil.copytree(trained.data, tmp_path / "longer")
    with open(data / "dict.txt", "a", encoding="utf-8") as file:
        file.write("extra 1\n")
    checkpoint = without_dictionary_hash(trained(name), tmp_path / "model.pt")
    command = ["eval", data, "--path", checkpoint, "--lengths", 16, "--out", tmp_path / "r.json"]
    code, message = fail(*command)
    assert code == 1
    assert "size mismatch" in message
    assert not (tmp_path / "r.json").exists()


def test_dictionary_digest_depends_on_order_only():
    original = small_dictionary(5)
    changed = small_dictionary(5)
    changed.count[4] = 1000
    assert dictionary_digest(original) == dictionary_digest(changed)
    changed.symbols[4], changed.symbols[5] = changed.symbols[5], changed.symbols[4]
    assert dictionary_digest(original) != dictionary_digest(changed)
