"""Tests of the scheduling of work items."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from alibi_fairseq.experiment import scheduler
from alibi_fairseq.experiment.child_process import CommandFailedError
from alibi_fairseq.experiment.slots import Slot


@pytest.fixture
def take_a_minute(monkeypatch):
    """Return the execution of a run that moves the clock by a minute."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    log = scheduler._ProgressLog
    monkeypatch.setattr(scheduler, "_ProgressLog", lambda *args: log(*args, start_time=clock[0]))

    def execute(slot):
        clock[0] += 60

    return execute


def fail_at_once(slot):
    raise CommandFailedError("it failed.", 1)


def test_a_failed_run_does_not_count_as_fast(capsys, take_a_minute):
    items = [
        scheduler.WorkItem("first", fail_at_once, updates=100),
        scheduler.WorkItem("second", take_a_minute, updates=100),
        scheduler.WorkItem("third", take_a_minute, updates=100),
    ]
    with pytest.raises(CommandFailedError):
        scheduler.run_all(items, [Slot()])
    output = capsys.readouterr().out
    assert "[2/3] second\n" in output  # no estimate: no run has finished
    assert "[3/3] third (about 01:00 left)" in output


def test_what_waits_for_a_failed_run_takes_no_time(capsys, take_a_minute):
    items = [
        scheduler.WorkItem("trial", fail_at_once, updates=100),
        scheduler.WorkItem("first", take_a_minute, updates=100),
        scheduler.WorkItem("second", take_a_minute, updates=100),
        scheduler.WorkItem("tuned", take_a_minute, updates=1000, after=("trial",)),
    ]
    with pytest.raises(CommandFailedError, match="2 of 4 runs and trials did not complete"):
        scheduler.run_all(items, [Slot()])
    assert "[3/4] second (about 01:00 left)" in capsys.readouterr().out


def test_evaluations_share_the_gpus_of_a_training():
    """Two evaluations run side by side on a slot of two GPUs. Each training has the whole slot."""
    together = threading.Barrier(2, timeout=30)
    used = {}

    def train(name, slot):
        used[name] = slot.environment["CUDA_VISIBLE_DEVICES"]

    def evaluate(name, slot):
        train(name, slot)
        together.wait()

    items = [
        scheduler.WorkItem("first", partial(train, "first"), updates=1),
        scheduler.WorkItem("second", partial(train, "second"), updates=1),
    ]
    for name in ("first", "second"):
        title = f"evaluation of {name}"
        execute = partial(evaluate, title)
        items.append(scheduler.WorkItem(title, execute, 0, (name,), one_gpu=True))
    scheduler.run_all(items, [Slot({"CUDA_VISIBLE_DEVICES": "0,1"})])
    evaluations = {used.pop("evaluation of first"), used.pop("evaluation of second")}
    assert evaluations == {"0", "1"}
    assert used == {"first": "0,1", "second": "0,1"}


def test_training_does_not_wait_for_later_evaluations():
    order = []
    items = [
        scheduler.WorkItem("short", order.append, updates=0, one_gpu=True),
        scheduler.WorkItem("training", order.append, updates=1),
        scheduler.WorkItem("long", order.append, updates=0, one_gpu=True),
    ]
    scheduler.run_all(items, [Slot({"CUDA_VISIBLE_DEVICES": "0,1"})])
    devices = [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in order]
    assert devices == ["0", "0,1", "0"]


def test_single_gpus_are_taken_from_as_few_slots_as_possible():
    slots = [Slot({"CUDA_VISIBLE_DEVICES": "0,1"}), Slot({"CUDA_VISIBLE_DEVICES": "2,3"})]
    pool = scheduler._SlotPool(slots)
    first = pool.take(one_gpu=True)
    second = pool.take(one_gpu=True)
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for _, slot in (first, second)] == ["0", "1"]
    whole = pool.take(one_gpu=False)
    assert whole == (1, slots[1])
    assert pool.take(one_gpu=True) is None
    pool.give_back(*second)
    assert pool.take(one_gpu=False) is None  # the other GPU is still in use
    pool.give_back(*first)
    assert pool.take(one_gpu=False) == (0, slots[0])


def test_slots_on_cpu_are_not_divided():
    slots = [Slot({"OMP_NUM_THREADS": "2"})]
    pool = scheduler._SlotPool(slots)
    taken = pool.take(one_gpu=True)
    assert taken == (0, slots[0])
    assert pool.take(one_gpu=False) is None
    pool.give_back(*taken)
    assert pool.take(one_gpu=False) == taken
