"""A data-loading process that fails or never answers ends a command."""

from __future__ import annotations

import os
import re
import signal
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
    """Batch that cannot be sent to another process."""

    def __reduce__(self):
        raise OSError("Too many open files")


class Samples(torch.utils.data.Dataset):
    def __init__(self, read_sample):
        self.read_sample = read_sample

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.read_sample(index)


def batches(read_sample, workers=1):
    """Return batches of one sample as fairseq loads them."""
    samples = Samples(read_sample)
    order = [[index] for index in range(len(samples))]
    epochs = iterators.EpochBatchIterator(samples, list, order, num_workers=workers, buffer_size=2)
    return epochs.next_epoch_itr(shuffle=False)


def unsendable(index):
    return Unsendable() if index == 2 else index


def killed(index):
    if index == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return index


@pytest.mark.ci
@pytest.mark.parametrize("read_sample", [unsendable, killed])
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_failed_loader_process_raises(read_sample, workers):
    loader = batches(read_sample, workers)
    with pytest.raises(UserInputError, match="A process that loads data failed .*--num-workers"):
        list(loader)


def test_dataset_error_is_raised_unchanged():
    def fail(index):
        raise RuntimeError("invalid sample")

    with pytest.raises(RuntimeError, match="invalid sample") as raised:
        list(batches(fail))
    assert not isinstance(raised.value, UserInputError)


def test_signal_ends_wait_for_batch(monkeypatch):
    monkeypatch.setattr(data_loading, "PATIENCE", 0.2)
    monkeypatch.setattr(data_loading, "_INTERVAL", 0.05)
    release = threading.Event()
    loader = batches(lambda index: release.wait(), workers=0)
    iterator = iterators.BufferedIterator(2, loader)
    with shutdown.listening():
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(UserInputError, match="SIGTERM: stopping without saving"):
            next(iterator)
    release.set()


def test_late_batch_is_read_after_signal():
    queue = data_loading.InterruptibleQueue()
    with shutdown.listening() as request:
        request.signal = signal.SIGTERM
        threading.Timer(1, queue.put, ("batch",)).start()
        assert queue.get() == "batch"


@pytest.mark.ci
def test_dead_worker_keeps_checkpoint(data_bin, tmp_path, monkeypatch):
    """Check that the same command resumes from the earlier checkpoint."""
    flags = [data_bin, *SHORT, "--save-dir", tmp_path]
    in_process("train", *flags)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    flags += ["--max-update", 9, "--num-workers", 1]
    with monkeypatch.context() as patch:
        read_sample = TokenBlockDataset.__getitem__

        def die_in_worker(samples, index):
            if torch.utils.data.get_worker_info() is not None:
                os.kill(os.getpid(), signal.SIGKILL)
            return read_sample(samples, index)

        patch.setattr(TokenBlockDataset, "__getitem__", die_in_worker)
        with pytest.raises(UserInputError, match="A process that loads data failed"):
            in_process("train", *flags)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    in_process("train", *flags)
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] == 9


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("limit", [20, 24])
def test_too_few_file_descriptors_end_training(data_bin, tmp_path, limit):
    """Check that the checkpoint is unchanged, and that training resumes from it."""
    command = ["alibi_fairseq", "train", data_bin, *SHORT, "--save-dir", tmp_path / "run"]
    assert as_process("-m", *command).returncode == 0
    before = (tmp_path / "run" / "checkpoint_last.pt").read_bytes()
    resume = [*map(str, command), "--max-update", "9", "--num-workers", "1"]
    program = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
        f"import runpy, sys; sys.argv = {resume!r}\n"
        "runpy.run_module('alibi_fairseq', run_name='__main__', alter_sys=True)"
    )
    start = time.monotonic()
    failed = as_process("-c", program)
    assert time.monotonic() - start < 120
    assert failed.returncode in (1, 2), failed.stderr[-2000:]
    assert re.search("Too many open files|loads data failed", failed.stderr)
    assert (tmp_path / "run" / "checkpoint_last.pt").read_bytes() == before
    resumed = as_process("-m", *resume)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
