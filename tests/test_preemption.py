"""A run that is told to stop saves, and goes on as if nothing had happened."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest
import torch
from fairseq.trainer import Trainer
from fairseq_runs import run_train, write_corpus

from alibi_fairseq import preemption


@pytest.fixture(autouse=True)
def signals():
    with preemption.signals_as_before():
        yield


FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=200)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """The last checkpoint of a run that nothing disturbed."""
    with preemption.signals_as_before():
        return run_train(data, tmp_path_factory.mktemp("whole"), *FLAGS, "--max-update", "40")


def tell_at_update(monkeypatch, update: int, number: int) -> None:
    """Send this process a signal in the middle of the update that follows ``update`` others."""
    prepare = Trainer._prepare_sample

    def sending(trainer, sample, *rest):
        if trainer.get_num_updates() == update:
            os.kill(os.getpid(), number)
        return prepare(trainer, sample, *rest)

    monkeypatch.setattr(Trainer, "_prepare_sample", sending)


@pytest.mark.parametrize("number", preemption.SIGNALS)
def test_a_stopped_run_goes_on_to_the_same_numbers(monkeypatch, whole, data, tmp_path, number):
    flags = (*FLAGS, "--max-update", "40")
    with monkeypatch.context() as patch:
        tell_at_update(patch, 10, number)
        stopped = run_train(data, tmp_path / "stopped", *flags)
    assert stopped["optimizer_history"][-1]["num_updates"] == 11
    assert 0 < stopped["extra_state"]["train_iterator"]["iterations_in_epoch"] == 11
    assert stopped["cfg"]["optimization"]["max_update"] == 40
    assert not (tmp_path / "stopped" / "checkpoint_best.pt").exists()  # no time for a validation

    resumed = run_train(data, tmp_path / "stopped", *flags)
    assert resumed["optimizer_history"][-1]["num_updates"] == 40
    for name, tensor in whole["model"].items():
        assert torch.equal(tensor, resumed["model"][name]), name
    moments = whole["last_optimizer_state"]["state"], resumed["last_optimizer_state"]["state"]
    for index, state in moments[0].items():
        for name, value in state.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(moments[1][index][name]))


def test_a_run_that_is_told_nothing_stops_where_it_should(data, tmp_path):
    state = run_train(data, tmp_path / "run", *FLAGS, "--max-update", "12")
    assert state["optimizer_history"][-1]["num_updates"] == 12
    assert state["cfg"]["optimization"]["stop_time_hours"] == 0
    assert (tmp_path / "run" / "checkpoint_best.pt").exists()


def test_all_processes_stop_when_one_is_told(monkeypatch):
    """The notes are added up; a process without one hears of the other's."""
    sums = []

    def all_reduce(tensor, group):
        sums.append((tensor.clone(), group))
        tensor += 1  # the other process was told

    monkeypatch.setattr("fairseq.distributed.utils.all_reduce", all_reduce)
    trainer = SimpleNamespace(
        data_parallel_world_size=2, device=torch.device("cpu"), data_parallel_process_group="group"
    )
    assert preemption.told_anywhere(preemption.Note(), trainer)
    assert sums == [(torch.zeros(1), "group")]


def test_signals_mean_afterwards_what_they_meant_before():
    before = [signal.getsignal(number) for number in preemption.SIGNALS]
    with preemption.signals_as_before():
        preemption.save_and_stop_when_told(SimpleNamespace(train_step=None))
        assert [signal.getsignal(number) for number in preemption.SIGNALS] != before
    assert [signal.getsignal(number) for number in preemption.SIGNALS] == before
