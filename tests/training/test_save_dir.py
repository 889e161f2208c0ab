"""Failed writes of checkpoints, and corrupted checkpoints."""

from __future__ import annotations

import errno
import os

import pytest
import torch
from commands import SHORT, in_process
from fairseq import checkpoint_utils
from fairseq.tasks.language_modeling import LanguageModelingTask

from alibi_fairseq.errors import UserInputError


def fill_disk_after(monkeypatch, writes: int) -> None:
    """Simulate a disk that is full from the n-th write on, after a part of the checkpoint."""
    save = torch.save
    calls = 0

    def save_until_full(obj, stream, **options):
        nonlocal calls
        calls += 1
        if calls < writes:
            return save(obj, stream, **options)
        stream.write(b"PK half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", save_until_full)


def load_update_count(path) -> int:
    return torch.load(path, weights_only=True)["optimizer_history"][-1]["num_updates"]


def test_full_disk_is_reported(data_bin, tmp_path, monkeypatch):
    flags = [data_bin, *SHORT, "--save-interval-updates", 1, "--keep-interval-updates", 9]
    flags += ["--save-dir", tmp_path]
    with monkeypatch.context() as patch:
        fill_disk_after(patch, 3)
        with pytest.raises(UserInputError, match="No space left on device"):
            in_process("train", *flags)
    names = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in names if name.endswith(".tmp")]
    assert load_update_count(tmp_path / "checkpoint_last.pt") == 2
    in_process("train", *flags)
    assert load_update_count(tmp_path / "checkpoint_last.pt") == 3


def test_file_size_limit_is_reported(tmp_path):
    """Cause a real error of the operating system in the middle of PyTorch's writer."""
    import resource
    import signal

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UserInputError, match="could not be written"):
            checkpoint_utils.torch_persistent_save(
                {"model": torch.ones(1_000_000)}, str(tmp_path / "checkpoint.pt")
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "is_saved"),
    [(UserInputError, False), (FloatingPointError, False), (RuntimeWarning, True)],
)
def test_crash_checkpoint_is_saved_only_for_unexpected_errors(
    data_bin, tmp_path, monkeypatch, error, is_saved
):
    def fail(*arguments, **keywords):
        raise error("wrong")

    monkeypatch.setattr(LanguageModelingTask, "train_step", fail)
    with pytest.raises(Exception, match="wrong"):  # of another type before the first update
        in_process("train", data_bin, *SHORT, "--save-dir", tmp_path / "run")
    assert (tmp_path / "run" / "crash.pt").exists() == is_saved
    assert (tmp_path / "run").exists() == is_saved


def flip_bit(content: bytes) -> bytes:
    """Flip a bit of a weight, which PyTorch does not detect."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


@pytest.mark.ci
@pytest.mark.parametrize(
    "corrupt",
    [
        pytest.param(lambda content: content[:-1000], id="cut off"),
        pytest.param(flip_bit, id="one bit"),
        pytest.param(lambda content: b"", id="empty", marks=pytest.mark.slow),
        pytest.param(lambda content: b"PK" * 99, id="something else", marks=pytest.mark.slow),
    ],
)
def test_corrupted_checkpoint_is_replaced_by_newest_valid(data_bin, tmp_path, caplog, corrupt):
    flags = [data_bin, *SHORT, "--save-interval-updates", 2, "--keep-interval-updates", 9]
    flags += ["--save-dir", tmp_path]
    in_process("train", *flags, "--max-update", 5)
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(corrupt(last.read_bytes()))
    (tmp_path / "checkpoint_best.pt").write_bytes(b"damaged as well")
    in_process("train", *flags, "--max-update", 6)
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    about_last = [message for message in warnings if str(last) in message]
    assert any("checkpoint_1_4.pt" in message for message in about_last), warnings
    assert load_update_count(last) == 6
    assert (tmp_path / "checkpoint_last.pt.damaged").is_file()


def test_missing_valid_checkpoint_is_reported(data_bin, tmp_path):
    (tmp_path / "checkpoint_last.pt").write_bytes(b"damaged")
    with pytest.raises(UserInputError, match="no other checkpoint .* is valid"):
        in_process("train", data_bin, *SHORT, "--save-dir", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint_last.pt"]


def test_evaluation_detects_flipped_bit(data_bin, checkpoint, tmp_path):
    path = tmp_path / "flipped.pt"
    path.write_bytes(flip_bit(checkpoint.read_bytes()))
    torch.load(path, weights_only=True)  # PyTorch alone does not detect it
    with pytest.raises(UserInputError, match="flipped.pt is damaged"):
        in_process("eval_lm", data_bin, "--path", path, "--cpu")
