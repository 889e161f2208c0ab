"""How commands are run and ended, with quick stand-ins for the training."""

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

from alibi_fairseq.errors import STOPPED_EARLY, UserInputError
from alibi_fairseq.runs import child_process as module
from alibi_fairseq.runs.child_process import ChildProcess, CommandFailedError, Slot, execute
from alibi_fairseq.runs.run import updates_made
from alibi_fairseq.runs.runner import WorkItem, exit_code, run_all

# Saves when it is asked to stop. It listens from the moment on when the file .began has its number.
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
    """Send signals to this process one after the other, the first as soon as files are there."""

    def deliver():
        while not all(path.exists() for path in (when if isinstance(when, list) else [when])):
            time.sleep(0.01)
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.2)

    threading.Thread(target=deliver, daemon=True).start()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.05)


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(75)", 75),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_the_exit_code_is_the_commands_and_handlers_are_restored(program, code):
    before = [signal.getsignal(number) for number in module.STOP_SIGNALS]
    assert execute([sys.executable, "-c", program]) == code
    assert [signal.getsignal(number) for number in module.STOP_SIGNALS] == before


@pytest.mark.parametrize(
    ("signals", "when", "options", "expected"),
    [
        *(([number], ".began", {}, STOPPED_EARLY) for number in module.STOP_SIGNALS),
        # SIGUSR1 would end a process that does not listen yet.
        ([signal.SIGTERM], ".early", {"starts_after": 1.0}, STOPPED_EARLY),
        ([signal.SIGTERM, signal.SIGUSR1], ".began", {}, STOPPED_EARLY),
        ([signal.SIGUSR1], ".began", {"code": 3}, 3),
    ],
)
def test_a_request_to_stop_is_passed_on_and_told_apart_from_the_end(
    tmp_path, signals, when, options, expected
):
    send(*signals, when=tmp_path / f"a{when}")
    assert execute(saving(tmp_path / "a", **options)) == expected


def test_a_command_that_saves_nothing_is_interrupted_once(tmp_path):
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
    with pytest.raises(CommandFailedError) as found:
        python(program, tmp_path / "log").run()
    assert found.value.code == 1


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


# Starts a command as ours do.
PARENT = """
import fcntl, pathlib, sys, termios, threading
sys.path.insert(0, {root!r})
from alibi_fairseq.runs.child_process import Place, stop_requests, execute
{call}
"""


def child_of(call, folder, **popen):
    """Start a parent whose child is running; returns the parent and the child's number."""
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
    assert (tmp_path / "child.saved").read_text() == "SIGTERM"


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
    assert (tmp_path / "child.saved").read_text() == "SIGUSR1" and ended(child)
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


def test_updates_of_the_last_checkpoint(tmp_path):
    assert updates_made(tmp_path) == 0
    torch.save({"optimizer_history": [{"num_updates": 7}]}, tmp_path / "checkpoint_last.pt")
    assert updates_made(tmp_path) == 7
    torch.save({"optimizer_history": []}, tmp_path / "checkpoint_last.pt")
    with pytest.raises(UserInputError, match="does not say how many updates"):
        updates_made(tmp_path)


def task(name, *commands, after=()):
    """Work that runs commands one after the other."""

    def carry_out(place):
        for command in commands:
            command.run(place)

    return WorkItem(name, carry_out, after=after)


def touch(path):
    """A command that creates a file."""
    return python(f"open({str(path)!r}, 'w').close()", path.with_suffix(".log"))


def training(path):
    return ChildProcess("copying", saving(path), path.with_suffix(".log"), updates=10)


def test_a_failing_command_names_its_log_and_the_last_line(tmp_path):
    program = "import sys; print('fine', flush=True); sys.exit('the disk is full')"
    command = python(program, tmp_path / "a.log", updates=1)
    with pytest.raises(
        CommandFailedError, match=r"copying failed .*a\.log; the last line is: the d"
    ) as found:
        command.run()
    assert found.value.code == 1
    assert "fine" in (tmp_path / "a.log").read_text()


def test_a_task_waits_for_what_it_needs_and_others_begin_before(tmp_path):
    """c waits for b to begin, and a for both to end; b and c have places of their own."""
    began = tmp_path / "b.began"
    wait = "while not os.path.exists({!r}): time.sleep(0.01)"
    b = f"import os, time\nopen({str(began)!r}, 'w').write(os.environ['GPU'])\n"
    b += wait.format(str(tmp_path / "c"))
    c = f"import os, time\n{wait.format(str(began))}\n"
    c += f"open({str(tmp_path / 'c')!r}, 'w').write(os.environ['GPU'])"
    a = f"import os\nassert os.path.exists({str(tmp_path / 'c')!r})\nopen({str(tmp_path / 'a')!r}, 'w')"
    tasks = [
        task("b", python(b, tmp_path / "b.log")),
        task("a", python(a, tmp_path / "a.log"), after=("b", "c")),
        task("c", python(c, tmp_path / "c.log")),
    ]
    run_all(tasks, [Slot({"GPU": "0"}), Slot({"GPU": "1"})])
    assert (tmp_path / "a").exists()
    assert (began.read_text(), (tmp_path / "c").read_text()) == ("0", "1")


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_request_to_stop_lets_all_trainings_save(tmp_path, parallel, capsys):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    runs = [task(path.name, training(path), touch(tmp_path / "never")) for path in paths]
    send(signal.SIGTERM, when=[path.with_suffix(".began") for path in paths[:parallel]])
    assert exit_code(lambda: run_all(runs, [Slot({"OMP_NUM_THREADS": "1"})] * parallel)) == 75
    printed = capsys.readouterr()
    assert "resumes from here" in printed.err and "[3/3]" not in printed.out
    saved = [path.with_suffix(".saved").exists() for path in paths]
    assert saved == [True, parallel == 2, False]
    assert not (tmp_path / "never").exists()


def test_a_failure_stops_the_others_and_is_what_is_reported(tmp_path):
    wait = f"while not os.path.exists({str(tmp_path / 'a.began')!r}): time.sleep(0.01)"
    failing = python(f"import os, time\n{wait}\nraise SystemExit(3)", tmp_path / "b.log")
    runs = [task("a", training(tmp_path / "a")), task("b", failing)]
    runs.append(task("c", touch(tmp_path / "c")))
    assert exit_code(lambda: run_all(runs, [Slot(), Slot()])) == 3
    assert (tmp_path / "a.saved").exists() and not (tmp_path / "c").exists()


@pytest.mark.parametrize("number", module.STOP_SIGNALS)
def test_a_function_ends_where_it_is_and_handlers_are_restored(tmp_path, number):
    before = [signal.getsignal(each) for each in module.STOP_SIGNALS]

    def work():
        (tmp_path / "began").touch()
        time.sleep(60)

    send(number, when=tmp_path / "began")
    assert exit_code(work) == 75
    assert [signal.getsignal(each) for each in module.STOP_SIGNALS] == before
