"""Checks of the model, the dictionary, and the save folder of resumed training."""

from __future__ import annotations

import fcntl

import pytest
import torch
from commands import SHORT, in_process, make_data
from fairseq.data import Dictionary

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.training import save_dir


@pytest.mark.parametrize(
    ("flag", "value", "before"),
    [
        ("--position-method", "rotary", "alibi"),
        ("--decoder-attention-heads", 2, 8),
        pytest.param("--attention-window", 8, 0, marks=pytest.mark.slow),
        pytest.param("--activation-fn", "gelu", "relu", marks=pytest.mark.slow),
    ],
)
def test_different_model_of_same_shapes_is_rejected(
    data_bin, checkpoint, tmp_path, flag, value, before
):
    flags = [*SHORT, flag, value, "--max-update", 5, "--save-dir", tmp_path / "run"]
    with pytest.raises(UserInputError, match=f"{flag} {before} .*{flag} {value}"):
        in_process("train", data_bin, *flags, "--restore-file", checkpoint)
    in_process("train", data_bin, *flags, "--finetune-from-model", checkpoint)
    in_process("train", data_bin, *flags, "--max-update", 6)  # resumes this run


def test_different_memory_is_rejected(data_bin, tmp_path):
    memory = ["--task", "segment_language_modeling", "--position-method", "transformer_xl"]
    flags = [*SHORT, *memory, "--save-dir", tmp_path / "run"]
    in_process("train", data_bin, *flags, "--mem-len", 8)
    with pytest.raises(UserInputError, match="--mem-len 8 and this command has --mem-len 16"):
        in_process("train", data_bin, *flags, "--mem-len", 16, "--max-update", 5)


def test_different_dictionary_of_same_size_is_rejected(checkpoint, data_bin, tmp_path):
    data = make_data(tmp_path)
    dictionary = Dictionary.load(str(data / "dict.txt"))
    dictionary.symbols[4:6] = dictionary.symbols[5:3:-1]
    dictionary.save(str(data / "dict.txt"))
    for flag in ("--restore-file", "--finetune-from-model"):
        with pytest.raises(UserInputError, match="another dictionary"):
            in_process("train", data, *SHORT, "--save-dir", tmp_path / "run", flag, checkpoint)


@pytest.mark.parametrize(
    "damage",
    [
        {"metrics": 3},
        {"metrics": {"train": [[0, "loss", "os.system", {}]]}},
        {"metrics": {"train": [[0, "loss", "AverageMeter", {"val": "x"}]]}},
        {"train_iterator": None},
    ],
    ids=str,
)
def test_corrupted_training_state_is_rejected(data_bin, checkpoint, tmp_path, refuse, damage):
    state = torch.load(checkpoint, weights_only=True)
    state["extra_state"] = {**state["extra_state"], **damage}
    torch.save(state, tmp_path / "checkpoint_last.pt")
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    flags = [*SHORT, "--save-dir", tmp_path, "--max-update", 5]
    assert str(tmp_path) in refuse("train", data_bin, *flags)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    assert not (tmp_path / "training.lock").exists()


class TestSaveDir:
    def test_second_training_names_first(self, data_bin, tmp_path):
        with save_dir.lock_save_dir(str(tmp_path)):
            with pytest.raises(
                UserInputError, match=r"another training \(process \d+ on .*\) holds"
            ):
                in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)
            assert (tmp_path / "training.lock").exists()
            with save_dir.lock_save_dir(str(tmp_path), rank=1):
                pass
        assert not list(tmp_path.iterdir())
        in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)

    def test_lock_of_killed_training_is_released(self, data_bin, tmp_path):
        (tmp_path / "training.lock").write_text("process 1 on elsewhere\n")
        in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)

    def test_read_only_folder_is_rejected(self, data_bin, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(UserInputError, match="--save-dir .* cannot be written to"):
            in_process("train", data_bin, *SHORT, "--save-dir", tmp_path / "file" / "below")

    def test_file_system_without_locks(self, tmp_path, monkeypatch, caplog):
        def flock(*_):
            raise OSError("no locks available")

        monkeypatch.setattr(fcntl, "flock", flock)
        with save_dir.lock_save_dir(str(tmp_path)):
            pass
        assert "cannot be locked" in caplog.text
