"""Child processes and work items, with fake trainings that take a moment."""

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
from commands import ROOT

from alibi_fairseq.errors import INTERRUPTED, STOPPED_EARLY, UserInputError
from alibi_fairseq.experiment import stoppable_command
from alibi_fairseq.experiment.child_process import ChildProcess, CommandFailedError
from alibi_fairseq.experiment.runner import run_with_exit_code
from alibi_fairseq.experiment.scheduler import WorkItem, run_all
from alibi_fairseq.experiment.slots import Slot
from alibi_fairseq.experiment.stoppable_command import execute_command
from alibi_fairseq.experiment.stopping import StopRequest
from alibi_fairseq.stop_signals import STOP_SIGNALS

# Saves on a stop request. Handles signals once the file .began contains its process ID.
SAVING = """
import os, pathlib, signal, sys, time
path = pathlib.Path({path!r})
def stop(number, frame):
    # The request is repeated, and the interpreter restores the default when it exits.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(0.5)
    path.with_suffix(".saved").write_text(signal.Signals(number).name)
    sys.exit({code})
path.with_suffix(".early").touch()
time.sleep({starts_after})
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, stop)
path.with_suffix(".began").write_text(str(os.getpid()))
time.sleep(60)
"""


def saving(path, code=0, starts_after=0.0):
    program = SAVING.format(path=str(path), code=code, starts_after=starts_after)
    return [sys.executable, "-c", program]


def python(program, log, updates=0):
    return ChildProcess("copying", [sys.executable, "-c", program], log, updates)


def send(*signals, when):
    """Send signals to this process in order, the first as soon as the files exist."""
    paths = when if isinstance(when, list) else [when]

    def deliver():
        while not all(path.exists() for path in paths):
            time.sleep(0.01)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    threading.Thread(target=deliver, daemon=True).start()


@pytest.fixture(autouse=True)
def short_polls(monkeypatch):
    monkeypatch.setattr(stoppable_command, "POLL_SECONDS", 0.05)


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(75)", 75),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_execute_returns_exit_code_and_restores_handlers(program, code):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    assert execute_command([sys.executable, "-c", program]) == code
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


STOP_CASES = [([number], ".began", {}, STOPPED_EARLY) for number in STOP_SIGNALS]
STOP_CASES += [
    # SIGUSR1 would end a process that does not listen yet.
    ([signal.SIGTERM], ".early", {"starts_after": 1.0}, STOPPED_EARLY),
    ([signal.SIGTERM, signal.SIGUSR1], ".began", {}, STOPPED_EARLY),
    ([signal.SIGUSR1], ".began", {"code": 3}, 3),
]


@pytest.mark.ci
@pytest.mark.parametrize(("signals", "when", "options", "expected"), STOP_CASES)
def test_stop_request_is_distinguished_from_normal_end(tmp_path, signals, when, options, expected):
    send(*signals, when=tmp_path / f"a{when}")
    assert execute_command(saving(tmp_path / "a", **options)) == expected


def test_evaluation_is_interrupted_once(tmp_path):
    program = f"""
import signal, sys, time
times = []
signal.signal(signal.SIGINT, lambda *_: times.append(1))
open({str(tmp_path / "mark")!r}, "w").close()
while not times:
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(len(times))
"""
    send(signal.SIGTERM, when=tmp_path / "mark")
    with pytest.raises(CommandFailedError) as failure:
        python(program, tmp_path / "log").run()
    assert failure.value.code == 1


# Ignores SIGUSR1, as does its child in a separate session. Writes the process ID of the child.
IGNORES_SIGUSR1 = """
import signal, subprocess, sys, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(sleep, start_new_session=True)
with open({mark!r}, "w") as mark:
    mark.write(str(child.pid))
time.sleep(60)
"""


def test_second_interrupt_kills_all_processes(tmp_path):
    send(signal.SIGINT, signal.SIGINT, when=tmp_path / "mark")
    command = [sys.executable, "-c", IGNORES_SIGUSR1.format(mark=str(tmp_path / "mark"))]
    assert execute_command(command) == INTERRUPTED
    child = int((tmp_path / "mark").read_text())
    # It was killed together with its parent, but may end a moment later.
    deadline = time.monotonic() + 10
    while not ended(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended(child)


def ended(pid: int) -> bool:
    """Return True if a process has ended, also if its parent has not read the exit code."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# Starts a child process as our commands do.
PARENT = """
import fcntl, pathlib, sys, termios, threading
sys.path.insert(0, {root!r})
from alibi_fairseq.experiment.stoppable_command import execute_command
from alibi_fairseq.experiment.stopping import stop_requests
from alibi_fairseq.experiment.slots import Slot
{call}
"""


def child_of(call, folder, **popen):
    """Start a parent and wait for its child; return the parent and the process ID of the child."""
    call = call.format(words=saving(folder / "child"), code=str(folder / "code"))
    program = PARENT.format(root=str(ROOT), call=call)
    parent = subprocess.Popen([sys.executable, "-c", program], **popen)
    pid = folder / "child.began"
    wait_until(lambda: pid.exists() and pid.read_text())
    return parent, int(pid.read_text())


def wait_until(condition, seconds=180):  # imports take long on a busy machine
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


IN_A_THREAD = """
with stop_requests() as stop:
    thread = threading.Thread(target=lambda: execute_command({words}, slot=Slot(stop=stop)))
    thread.start()
    thread.join()
"""
IN_A_TERMINAL = """
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
code = execute_command({words})
pathlib.Path({code!r}).write_text(str(code))
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="only the Linux kernel signals children of a killed parent"
)
@pytest.mark.parametrize("call", ["execute_command({words})", IN_A_THREAD])
def test_killed_parent_stops_its_command(tmp_path, call):
    parent, child = child_of(call, tmp_path)
    parent.kill()
    parent.wait()
    wait_until(lambda: ended(child))
    assert (tmp_path / "child.saved").read_text() == "SIGTERM"


def test_command_of_ended_parent_does_not_start(tmp_path):
    mark = tmp_path / "mark"
    program = [sys.executable, "-c", f"open({str(mark)!r}, 'w')"]
    start = [sys.executable, "-c", stoppable_command._WITH_PARENT, str(os.getppid()), *program]
    assert subprocess.run(start).returncode == 128 + signal.SIGTERM
    assert not mark.exists()


@pytest.mark.ci
def test_closed_terminal_saves_and_stops(tmp_path):
    """After SIGHUP every write to the terminal raises an error."""
    controller, terminal = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    parent, child = child_of(IN_A_TERMINAL, tmp_path, start_new_session=True, **streams)
    os.close(terminal)
    os.close(controller)
    parent.wait(180)
    assert (tmp_path / "child.saved").read_text() == "SIGUSR1"
    assert ended(child)
    assert (tmp_path / "code").read_text() == str(STOPPED_EARLY)


@pytest.mark.ci
def test_sighup_is_ignored_under_nohup(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        send(signal.SIGHUP, when=tmp_path / "mark")
        program = f"open({str(tmp_path / 'mark')!r}, 'w').close(); import time; time.sleep(1)"
        assert execute_command([sys.executable, "-c", program]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def work_item(name, *commands, after=()):
    """Return a work item that runs commands in order."""

    def execute_commands(slot):
        for command in commands:
            command.run(slot)

    return WorkItem(name, execute_commands, updates=1, after=after)


def touch(path):
    """Return a command that creates a file."""
    return python(f"open({str(path)!r}, 'w').close()", path.with_suffix(".log"))


def training(path):
    return ChildProcess("copying", saving(path), path.with_suffix(".log"), updates=10)


def test_failed_command_names_log_and_last_line(tmp_path):
    program = "import sys; print('fine', flush=True); sys.exit('the disk is full')"
    command = python(program, tmp_path / "a.log", updates=1)
    with pytest.raises(
        CommandFailedError, match=r"copying failed .*a\.log\. Its last line is: the d"
    ) as failure:
        command.run()
    assert failure.value.code == 1
    assert "fine" in (tmp_path / "a.log").read_text()


def test_reason_of_a_failure_cannot_control_the_terminal(tmp_path):
    command = python("import sys; sys.exit('bad \\x1b[2J text')", tmp_path / "a.log", updates=1)
    with pytest.raises(CommandFailedError, match=r"Its last line is: bad \\x1b\[2J text$"):
        command.run()


def test_evaluation_shows_progress_and_logs_its_table(tmp_path, capfd):
    program = "import sys; print('a table'); print('a bar', file=sys.stderr)"
    python(program, tmp_path / "a.log").run()
    shown = capfd.readouterr()
    assert shown.out == f"copying (log: {tmp_path / 'a.log'})\n"
    assert shown.err == "a bar\n"
    command, table = (tmp_path / "a.log").read_text().splitlines()
    assert command.startswith("$ python -c ")
    assert table == "a table"


def test_concurrent_evaluation_shows_the_percentage_of_its_log(tmp_path, capfd):
    program = "import sys; print('length 64:  45%|####  | 9/20', file=sys.stderr)"
    python(program, tmp_path / "a.log").run(Slot(stop=StopRequest()))
    assert "length 64" in (tmp_path / "a.log").read_text()
    shown = capfd.readouterr().err
    assert "length 64" not in shown
    assert "copying:  45%|" in shown


def test_work_item_waits_for_dependencies(tmp_path):
    """Run a after b and c, and c after the start of b, with separate slots for b and c."""
    began = tmp_path / "b.began"
    wait = "while not os.path.exists({!r}): time.sleep(0.01)"
    b = f"import os, time\nopen({str(began)!r}, 'w').write(os.environ['GPU'])\n"
    b += wait.format(str(tmp_path / "c"))
    c = f"import os, time\n{wait.format(str(began))}\n"
    c += f"open({str(tmp_path / 'c')!r}, 'w').write(os.environ['GPU'])"
    a = f"import os\nassert os.path.exists({str(tmp_path / 'c')!r})\n"
    a += f"open({str(tmp_path / 'a')!r}, 'w')"
    items = [
        work_item("b", python(b, tmp_path / "b.log")),
        work_item("a", python(a, tmp_path / "a.log"), after=("b", "c")),
        work_item("c", python(c, tmp_path / "c.log")),
    ]
    run_all(items, [Slot({"GPU": "0"}), Slot({"GPU": "1"})])
    assert (tmp_path / "a").exists()
    assert (began.read_text(), (tmp_path / "c").read_text()) == ("0", "1")


@pytest.mark.parametrize("parallel", [1, 2])
def test_stop_request_lets_all_trainings_save(tmp_path, parallel, capsys):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    runs = [work_item(path.name, training(path), touch(tmp_path / "never")) for path in paths]
    send(signal.SIGTERM, when=[path.with_suffix(".began") for path in paths[:parallel]])
    assert (
        run_with_exit_code(lambda: run_all(runs, [Slot({"OMP_NUM_THREADS": "1"})] * parallel)) == 75
    )
    printed = capsys.readouterr()
    assert "to resume" in printed.err
    assert "[3/3]" not in printed.out
    saved = [path.with_suffix(".saved").exists() for path in paths]
    assert saved == [True, parallel == 2, False]
    assert not (tmp_path / "never").exists()


def test_second_interrupt_starts_no_other_run(tmp_path, capsys):
    command = [sys.executable, "-c", IGNORES_SIGUSR1.format(mark=str(tmp_path / "mark"))]
    runs = [work_item("a", ChildProcess("copying", command, tmp_path / "a.log", updates=10))]
    runs.append(work_item("b", touch(tmp_path / "b")))
    send(signal.SIGINT, signal.SIGINT, when=tmp_path / "mark")
    assert run_with_exit_code(lambda: run_all(runs, [Slot()])) == STOPPED_EARLY
    shown = capsys.readouterr()
    assert "launcher: SIGINT: stopping …" in shown.err
    assert "launcher: SIGINT: stopping at once" in shown.err
    assert "a failed" not in shown.out
    assert not (tmp_path / "b").exists()


def test_failure_to_save_starts_no_other_run(tmp_path, capsys):
    path = tmp_path / "a"
    command = ChildProcess("copying", saving(path, code=3), tmp_path / "a.log", updates=10)
    runs = [work_item("a", command), work_item("b", touch(tmp_path / "b"))]
    send(signal.SIGTERM, when=path.with_suffix(".began"))
    assert run_with_exit_code(lambda: run_all(runs, [Slot()])) == STOPPED_EARLY
    assert "a failed. copying failed with exit code 3" in capsys.readouterr().out
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("parallel", [1, 2])
def test_failure_does_not_end_others(tmp_path, parallel, capsys):
    log = tmp_path / "a.log"
    runs = [work_item("a", python("raise SystemExit(3)", log, updates=1))]
    runs.append(work_item("b", touch(tmp_path / "b"), after=("a",)))
    runs.append(work_item("c", touch(tmp_path / "c")))

    def reject(slot):
        raise UserInputError("d has other settings")

    runs.append(WorkItem("d", reject, updates=1))
    runs.append(work_item("e", touch(tmp_path / "e"), after=("c",)))
    code = run_with_exit_code(lambda: run_all(runs, [Slot()] * parallel))
    assert code == 3 or (parallel == 2 and code == 2)  # d can fail first
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "c").exists()
    assert (tmp_path / "e").exists()
    lines = capsys.readouterr().err.splitlines()
    first = next(number for number, line in enumerate(lines) if "3 of 5 runs" in line)
    reasons = sorted(lines[first + 1 : first + 4])
    assert f"  a: copying failed with exit code 3. See {log}" in reasons[0]
    assert reasons[1:] == ["  b: not started, because a failed.", "  d: d has other settings"]


def test_unexpected_error_stops_others(tmp_path):
    def fail(slot):
        while not (tmp_path / "a.began").exists():
            time.sleep(0.01)
        raise ZeroDivisionError

    runs = [work_item("a", training(tmp_path / "a")), WorkItem("b", fail, updates=1)]
    runs.append(work_item("c", touch(tmp_path / "c")))
    with pytest.raises(ZeroDivisionError):
        run_all(runs, [Slot(), Slot()])
    assert (tmp_path / "a.saved").exists()
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_stopped_function_restores_handlers(tmp_path, number):
    before = [signal.getsignal(stop) for stop in STOP_SIGNALS]

    def work():
        (tmp_path / "began").touch()
        time.sleep(60)

    send(number, when=tmp_path / "began")
    assert run_with_exit_code(work) == 75
    assert [signal.getsignal(stop) for stop in STOP_SIGNALS] == before
