"""How the launcher ends a run, with quick stand-ins for the training."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch
from commands import ROOT

from alibi_fairseq.errors import STOPPED_EARLY, BadInput
from alibi_fairseq.experiments import command as module
from alibi_fairseq.experiments.command import execute
from alibi_fairseq.experiments.run import has_reached

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
    monkeypatch.setattr(module, "INTERVAL", 0.05)


@pytest.mark.parametrize("code", [0, 1, 2, 75])
def test_the_exit_code_is_the_commands(code):
    assert execute([sys.executable, "-c", f"raise SystemExit({code})"]) == code


def test_a_command_that_a_signal_ends_counts_as_in_a_shell():
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert execute([sys.executable, "-c", kill]) == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_request_to_stop_is_passed_on_and_told_apart_from_the_end(tmp_path, number):
    send(number, when=tmp_path / "mark")
    assert execute(listener(tmp_path / "mark")) == STOPPED_EARLY


def test_an_early_request_is_kept(tmp_path):
    """SIGUSR1 would end a process that does not listen yet."""
    send(signal.SIGTERM, when=tmp_path / "mark-early")
    assert execute(listener(tmp_path / "mark", starts_after=1.0)) == STOPPED_EARLY


def test_two_signals_at_once_are_one_request(tmp_path):
    send(signal.SIGTERM, signal.SIGUSR1, when=tmp_path / "mark")
    assert execute(listener(tmp_path / "mark")) == STOPPED_EARLY


def test_a_failure_while_stopping_is_a_failure(tmp_path):
    send(signal.SIGUSR1, when=tmp_path / "mark")
    assert execute(listener(tmp_path / "mark", code=3)) == 3


def test_a_command_that_saves_nothing_is_interrupted_once(tmp_path):
    program = """
import signal, sys, time
times = []
def stop(*_):
    times.append(1)
signal.signal(signal.SIGINT, stop)
open({mark!r}, "w").close()
while not times:
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(len(times))
"""
    send(signal.SIGTERM, when=tmp_path / "mark")
    command = [sys.executable, "-c", program.format(mark=str(tmp_path / "mark"))]
    assert execute(command, signal.SIGINT) == 1


def test_what_a_command_prints_goes_to_its_log_and_is_watched(tmp_path, capfd):
    program = "import sys, time; print('one', flush=True); time.sleep(0.5); sys.exit('two')"
    seen = []
    with open(tmp_path / "log", "w") as log:
        code = execute(
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
    assert execute(command) == 128 + signal.SIGKILL
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


# Starts a command as ours do; the command says its number, and saves when it is told to stop.
PARENT = """
import fcntl, pathlib, sys, termios, threading
sys.path.insert(0, {root!r})
from alibi_fairseq.experiments.command import Place, stop_requests, execute
{call}
"""
CHILD = """
import os, pathlib, signal, sys, time
folder = pathlib.Path({folder!r})
def stop(number, frame):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    (folder / "saved").write_text(signal.Signals(number).name)
    sys.exit()
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGUSR1, stop)
(folder / "pid").write_text(str(os.getpid()))
time.sleep(60)
"""


def child_of(call, folder, **popen):
    """Start a parent whose child is running; returns the parent and the child's number."""
    child = [sys.executable, "-c", CHILD.format(folder=str(folder))]
    call = call.format(words=child, code=str(folder / "code"))
    program = PARENT.format(root=str(ROOT), call=call)
    parent = subprocess.Popen([sys.executable, "-c", program], **popen)
    wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    return parent, int((folder / "pid").read_text())


def wait_until(condition, seconds=180):  # imports take long on a busy machine
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


IN_A_THREAD = """
with stop_requests() as stop:
    thread = threading.Thread(target=lambda: execute({words}, place=Place(stop=stop)))
    thread.start()
    thread.join()
"""
IN_A_TERMINAL = """
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
code = execute({words})
pathlib.Path({code!r}).write_text(str(code))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children on Linux only")
@pytest.mark.parametrize("call", ["execute({words})", IN_A_THREAD])
def test_a_killed_parent_leaves_no_command_behind(tmp_path, call):
    parent, child = child_of(call, tmp_path)
    parent.kill()
    parent.wait()
    wait_until(lambda: ended(child))
    assert (tmp_path / "saved").read_text() == "SIGTERM"


def test_a_command_whose_parent_has_ended_does_not_begin(tmp_path):
    mark = tmp_path / "mark"
    program = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    start = [sys.executable, "-c", module._WITH_PARENT, str(os.getppid()), *program]
    assert subprocess.run(start).returncode == 128 + signal.SIGTERM
    assert not mark.exists()


def test_a_closed_terminal_saves_and_stops(tmp_path):
    """After SIGHUP every write to the terminal raises an error."""
    ours, theirs = pty.openpty()
    terminal = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    parent, child = child_of(IN_A_TERMINAL, tmp_path, start_new_session=True, **terminal)
    os.close(theirs)
    os.close(ours)
    parent.wait(180)
    assert (tmp_path / "saved").read_text() == "SIGUSR1" and ended(child)
    assert (tmp_path / "code").read_text() == str(STOPPED_EARLY)


def test_nohup_is_respected(tmp_path):
    """What ignores SIGHUP when it starts goes on when the terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        send(signal.SIGHUP, when=tmp_path / "mark")
        program = f"open({str(tmp_path / 'mark')!r}, 'w').close(); import time; time.sleep(1)"
        assert execute([sys.executable, "-c", program]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_handlers_are_restored():
    before = [signal.getsignal(number) for number in module.STOP_SIGNALS]
    execute([sys.executable, "-c", ""])
    assert [signal.getsignal(number) for number in module.STOP_SIGNALS] == before


def test_a_finished_run_is_recognised_by_its_last_checkpoint(tmp_path):
    assert not has_reached(tmp_path, 1)
    torch.save({"optimizer_history": [{"num_updates": 7}]}, tmp_path / "checkpoint_last.pt")
    assert has_reached(tmp_path, 7)
    assert not has_reached(tmp_path, 8)
    torch.save({"optimizer_history": []}, tmp_path / "checkpoint_last.pt")
    with pytest.raises(BadInput, match="does not say how many updates"):
        has_reached(tmp_path, 7)
