"""A checkpoint that cannot be written leaves the earlier ones and nothing else."""

from __future__ import annotations

import errno
import os

import pytest
import torch
from commands import SHORT, in_process
from fairseq import checkpoint_utils

from alibi_fairseq.errors import BadInput


def fill_disk_after(monkeypatch, writes: int) -> None:
    """The disk is full from the n-th checkpoint on, after some of it has been written."""
    save, calls = torch.save, []

    def failing(obj, stream, **options):
        calls.append(1)
        if len(calls) < writes:
            return save(obj, stream, **options)
        stream.write(b"PK half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch, "save", failing)


def test_a_full_disk(data_bin, tmp_path, monkeypatch):
    flags = [data_bin, *SHORT, "--save-interval-updates", 1, "--keep-interval-updates", 9]
    flags += ["--save-dir", tmp_path]
    with monkeypatch.context() as patch:
        fill_disk_after(patch, 3)
        with pytest.raises(BadInput, match=r"could not be written \(No space left on device\)"):
            in_process("train", *flags)
    names = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in names if name.endswith(".tmp")]
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 2
    in_process("train", *flags)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_a_limit_on_the_size_of_files(tmp_path):
    """A real error of the operating system, in the middle of torch's own writer."""
    import resource
    import signal

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(BadInput, match="could not be written"):
            checkpoint_utils.torch_persistent_save(
                {"model": torch.ones(1_000_000)}, str(tmp_path / "checkpoint.pt")
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert not list(tmp_path.iterdir())


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(Exception, match="pickle") as raised:
        checkpoint_utils.torch_persistent_save(lambda: None, str(tmp_path / "checkpoint.pt"))
    assert not isinstance(raised.value, BadInput) and not list(tmp_path.iterdir())
