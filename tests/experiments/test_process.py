"""How the launcher ends a run, with quick stand-ins for the training."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import psutil
import pytest
import torch

from alibi_fairseq.errors import STOPPED_EARLY, BadInput
from alibi_fairseq.experiments import process

# Handles SIGUSR1 after a while, as a training does, and then makes a file.
LISTENER = """
import signal, sys, time
def stop(*_):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(0.5)  # saves
    sys.exit({code})
open({mark!r} + "-early", "w").close()
time.sleep({starts_after})
signal.signal(signal.SIGUSR1, stop)
open({mark!r}, "w").close()
time.sleep(60)
"""


def listener(mark, code=0, starts_after=0.0):
    return [
        sys.executable,
        "-c",
        LISTENER.format(mark=str(mark), code=code, starts_after=starts_after),
    ]


def send(*signals, when):
    """Send signals to this process one after the other, the first as soon as a file is there."""

    def deliver():
        while not when.exists():
            time.sleep(0.01)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    threading.Thread(target=deliver, daemon=True).start()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(process, "INTERVAL", 0.05)


@pytest.mark.parametrize("code", [0, 1, 2, 75])
def test_the_exit_code_is_the_commands(code):
    assert process.run([sys.executable, "-c", f"raise SystemExit({code})"]) == code


def test_a_command_that_a_signal_ends_counts_as_in_a_shell():
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert process.run([sys.executable, "-c", kill]) == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_request_to_stop_is_passed_on_and_told_apart_from_the_end(tmp_path, number):
    send(number, when=tmp_path / "mark")
    assert process.run(listener(tmp_path / "mark")) == STOPPED_EARLY


def test_an_early_request_is_kept(tmp_path):
    """SIGUSR1 would end a process that does not listen yet."""
    send(signal.SIGTERM, when=tmp_path / "mark-early")
    assert process.run(listener(tmp_path / "mark", starts_after=1.0)) == STOPPED_EARLY


def test_two_signals_at_once_are_one_request(tmp_path):
    send(signal.SIGTERM, signal.SIGUSR1, when=tmp_path / "mark")
    assert process.run(listener(tmp_path / "mark")) == STOPPED_EARLY


def test_a_failure_while_stopping_is_a_failure(tmp_path):
    send(signal.SIGUSR1, when=tmp_path / "mark")
    assert process.run(listener(tmp_path / "mark", code=3)) == 3


def test_another_way_to_ask_is_repeated(tmp_path):
    """As for commands that save nothing themselves: Ctrl-C, once."""
    asked = []

    def ask(pid):
        asked.append(pid)
        if len(asked) == 3:
            os.kill(pid, signal.SIGINT)

    send(signal.SIGTERM, when=tmp_path / "mark")
    code = process.run(listener(tmp_path / "mark"), ask)
    assert code == 128 + signal.SIGINT and len(set(asked)) == 1 and len(asked) >= 3


def test_what_a_command_prints_goes_to_its_log_and_is_watched(tmp_path, capfd):
    program = "import sys, time; print('one', flush=True); time.sleep(0.5); sys.exit('two')"
    seen = []
    with open(tmp_path / "log", "w") as log:
        code = process.run(
            [sys.executable, "-c", program],
            log=log,
            watch=lambda: seen.append((tmp_path / "log").read_text()),
        )
    assert code == 1
    assert seen[-1] == (tmp_path / "log").read_text() == "one\ntwo\n"
    assert "one\n" in seen
    assert capfd.readouterr().out == ""


# Ignores SIGUSR1, as does what it starts in a session of its own; says that process's number.
DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session=True)
with open({mark!r}, "w") as mark:
    mark.write(str(child.pid))
time.sleep(60)
"""


def test_a_second_interrupt_ends_everything_now(tmp_path):
    send(signal.SIGINT, signal.SIGINT, when=tmp_path / "mark")
    command = [sys.executable, "-c", DEAF.format(mark=str(tmp_path / "mark"))]
    assert process.run(command) == 128 + signal.SIGKILL
    child = int((tmp_path / "mark").read_text())
    # It was killed in the same moment as its parent, and may be a moment later in ending.
    deadline = time.monotonic() + 10
    while not ended(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended(child)


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_signal_handlers_are_restored():
    before = [signal.getsignal(number) for number in process.STOP_SIGNALS]
    process.run([sys.executable, "-c", ""])
    assert [signal.getsignal(number) for number in process.STOP_SIGNALS] == before


def test_a_finished_run_is_recognised_by_its_last_checkpoint(tmp_path):
    assert not process.has_reached(tmp_path, 1)
    torch.save({"optimizer_history": [{"num_updates": 7}]}, tmp_path / "checkpoint_last.pt")
    assert process.has_reached(tmp_path, 7)
    assert not process.has_reached(tmp_path, 8)
    torch.save({"optimizer_history": []}, tmp_path / "checkpoint_last.pt")
    with pytest.raises(BadInput, match="does not say how many updates"):
        process.has_reached(tmp_path, 7)
