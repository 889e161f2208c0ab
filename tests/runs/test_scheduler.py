"""Tests of the scheduling of work items."""

from __future__ import annotations

import time

import pytest

from alibi_fairseq.runs import scheduler
from alibi_fairseq.runs.child_process import CommandFailedError
from alibi_fairseq.runs.execution import Slot


def test_a_failed_run_does_not_count_as_fast(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    log = scheduler._ProgressLog
    monkeypatch.setattr(scheduler, "_ProgressLog", lambda *args: log(*args, start_time=clock[0]))

    def fail_at_once(slot):
        raise CommandFailedError("it failed.", 1)

    def take_a_minute(slot):
        clock[0] += 60

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
