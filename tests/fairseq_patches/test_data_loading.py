"""A failed process that loads data, or one that never answers, ends a command."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
import torch
from commands import SHORT, as_process, in_process
from fairseq.data import TokenBlockDataset, iterators

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.fairseq_patches import data_loading
from alibi_fairseq.training import shutdown

pytestmark = pytest.mark.timeout(60)


class Unsendable:
    """A batch that cannot be sent to another process."""

    def __reduce__(self):
        raise OSError("Too many open files")


class Samples(torch.utils.data.Dataset):
    def __init__(self, read):
        self.read = read

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.read(index)


def batches(read, workers=1):
    """Batches of one sample as fairseq loads them."""
    samples = Samples(read)
    order = [[index] for index in range(len(samples))]
    epochs = iterators.EpochBatchIterator(samples, list, order, num_workers=workers, buffer_size=2)
    return epochs.next_epoch_itr(shuffle=False)


def unsendable(index):
    return Unsendable() if index == 2 else index


def killed(index):
    if index == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


@pytest.mark.parametrize("read", [unsendable, killed])
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_failed_loader_process_raises(read, workers):
    found = batches(read, workers)
    with pytest.raises(UserInputError, match="A process that loads data failed .*--num-workers"):
        list(found)


def test_dataset_errors_are_kept():
    def read(index):
        raise RuntimeError("of the data")

    with pytest.raises(RuntimeError, match="of the data") as raised:
        list(batches(read))
    assert not isinstance(raised.value, UserInputError)


def test_signal_ends_waiting_for_a_batch(monkeypatch):
    monkeypatch.setattr(data_loading, "PATIENCE", 0.2)
    monkeypatch.setattr(data_loading, "_INTERVAL", 0.05)
    never = threading.Event()
    waiting = iterators.BufferedIterator(2, batches(lambda index: never.wait(), workers=0))
    with shutdown.listening():
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(UserInputError, match="SIGTERM: stopping without saving"):
            next(waiting)
    never.set()


def test_late_batch_is_read_after_a_signal():
    items = data_loading.InterruptibleQueue()
    with shutdown.listening() as request:
        request.signal = signal.SIGTERM
        threading.Timer(1, items.put, ("batch",)).start()
        assert items.get() == "batch"


def test_dead_worker_keeps_checkpoint(data_bin, tmp_path, monkeypatch):
    """The earlier checkpoint is unchanged, and the same command resumes from it."""
    flags = [data_bin, *SHORT, "--save-dir", tmp_path]
    in_process("train", *flags)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    more = [*flags, "--max-update", 9, "--num-workers", 1]
    with monkeypatch.context() as patch:
        read = TokenBlockDataset.__getitem__

        def die_in_worker(samples, index):
            if torch.utils.data.get_worker_info() is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            return read(samples, index)

        patch.setattr(TokenBlockDataset, "__getitem__", die_in_worker)
        with pytest.raises(UserInputError, match="A process that loads data failed"):
            in_process("train", *more)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    in_process("train", *more)
    after = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert after["optimizer_history"][-1]["num_updates"] == 9


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_too_few_file_descriptors_end_training(data_bin, tmp_path):
    """The run resumes from its checkpoint, and the limit changes no file."""
    command = ["alibi_fairseq", "train", data_bin, *SHORT, "--save-dir", tmp_path / "run"]
    assert as_process("-m", *command).returncode == 0
    before = (tmp_path / "run" / "checkpoint_last.pt").read_bytes()
    more = [*map(str, command), "--max-update", "9", "--num-workers", "1"]
    for limit in (20, 24):
        program = (
            f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
            f"import runpy, sys; sys.argv = {more!r}\n"
            "runpy.run_module('alibi_fairseq', run_name='__main__', alter_sys=True)"
        )
        began = time.monotonic()
        ended = as_process("-c", program)
        assert ended.returncode in (1, 2), ended.stderr[-2000:]
        assert "Too many open files" in ended.stderr or "loads data failed" in ended.stderr
        assert time.monotonic() - began < 120
        assert (tmp_path / "run" / "checkpoint_last.pt").read_bytes() == before
    assert as_process("-m", *more).returncode == 0, sys.executable
