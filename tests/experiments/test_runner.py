"""Commands, and runs made of them, one after the other and in parallel."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from alibi_fairseq.data.parallel import progress
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments import command as module
from alibi_fairseq.experiments.command import Command, Failed, Place, Stopped, advance
from alibi_fairseq.experiments.runner import exit_code, run_all


@pytest.fixture(autouse=True)
def short_interval(monkeypatch):
    monkeypatch.setattr(module, "INTERVAL", 0.02)


def python(program, log, updates=0):
    return Command("copying", [sys.executable, "-c", program], log, updates)


def task(name, *commands):
    """Work that runs commands one after the other."""

    def carry_out(place):
        for command in commands:
            command.run(place)

    return name, carry_out


def touch(path):
    """A command that creates a file."""
    return python(f"open({str(path)!r}, 'w').close()", path.with_suffix(".log"))


# A training that saves when it is asked to stop.
TRAINING = """
import pathlib, signal, sys, time
def stop(*_):
    # The request is repeated, and the interpreter restores the default when it exits.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    pathlib.Path({path!r}).with_suffix(".saved").touch()
    sys.exit()
signal.signal(signal.SIGUSR1, stop)
pathlib.Path({path!r}).with_suffix(".began").touch()
time.sleep(60)
"""


def training(path):
    return python(TRAINING.format(path=str(path)), path.with_suffix(".log"), updates=10)


def send_when(number, *paths):
    """Send this process a signal as soon as files exist."""

    def send():
        while not all(path.exists() for path in paths):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


def test_a_failing_command_names_its_log_and_the_last_line(tmp_path):
    program = "import sys; print('fine', flush=True); sys.exit('the disk is full')"
    command = python(program, tmp_path / "a.log", updates=1)
    with pytest.raises(
        Failed, match=r"copying failed .*a\.log; the last line is: the disk"
    ) as found:
        command.run()
    assert found.value.code == 1
    assert "fine" in (tmp_path / "a.log").read_text()


def test_progress_follows_the_log():
    with progress(100, "training", "update") as bar:
        advance(bar, 'now | INFO | train_inner | {"loss": "9.1", "num_updates": "40"}\n')
        advance(bar, "now | INFO | fairseq.trainer | something else\n")
        assert bar.n == 40 and "9.1" in bar.postfix


def test_runs_keep_their_order(tmp_path, capsys):
    runs = [task(name, touch(tmp_path / name)) for name in "abc"]
    run_all(runs, [Place()])
    printed = capsys.readouterr().out
    assert "[1/3] a" in printed and "[3/3] c (about 1 min left)" in printed
    assert all((tmp_path / name).exists() for name in "abc")


@pytest.mark.parametrize("parallel", [1, 2])
def test_parallel_runs_go_on_at_the_same_time_with_one_thread_each(tmp_path, parallel):
    """Each of two commands waits for the other; alone, the first would fail."""
    paths = tmp_path / "a", tmp_path / "b"

    def wait(own, other):
        return (
            f"open({str(own) + '.here'!r}, 'w').close(); end = time.time() + 3\n"
            f"while not os.path.exists({str(other) + '.here'!r}):\n"
            "    assert time.time() < end\n"
            "    time.sleep(0.01)\n"
        )

    def run(own, other):
        program = f"import os, time\n{wait(own, other)}"
        program += f"open({str(own)!r}, 'w').write(os.environ['OMP_NUM_THREADS'])"
        return task(own.name, python(program, own.with_suffix(".log")))

    runs = [run(*paths), run(*reversed(paths))]
    if parallel == 1:
        with pytest.raises(Failed):
            run_all(runs, [Place({"OMP_NUM_THREADS": "1"})] * parallel)
    else:
        run_all(runs, [Place({"OMP_NUM_THREADS": "1"})] * parallel)
        assert [path.read_text() for path in paths] == ["1", "1"]


def test_runs_at_the_same_time_have_different_environments(tmp_path):
    def run(path):
        program = (
            f"import os, time\ntime.sleep(0.5)\nopen({str(path)!r}, 'w').write(os.environ['GPU'])"
        )
        return task(path.name, python(program, path.with_suffix(".log")))

    paths = [tmp_path / name for name in "abcd"]
    run_all([run(path) for path in paths], [Place({"GPU": "0"}), Place({"GPU": "1"})])
    used = [path.read_text() for path in paths]
    assert sorted(used[:2]) == sorted(used[2:]) == ["0", "1"]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_request_to_stop_lets_all_trainings_save(tmp_path, parallel, capsys):
    paths = [tmp_path / name for name in ("a", "b", "c")]
    runs = [task(path.name, training(path), touch(tmp_path / "never")) for path in paths]
    send_when(signal.SIGTERM, *(path.with_suffix(".began") for path in paths[:parallel]))
    assert exit_code(lambda: run_all(runs, [Place({"OMP_NUM_THREADS": "1"})] * parallel)) == 75
    printed = capsys.readouterr()
    assert "resumes from here" in printed.err and "[3/3]" not in printed.out
    assert [path.with_suffix(".saved").exists() for path in paths] == [
        True,
        parallel == 2,
        False,
    ]
    assert not (tmp_path / "never").exists()


def test_a_failure_stops_the_others_and_is_what_is_reported(tmp_path):
    wait = f"while not os.path.exists({str(tmp_path / 'a.began')!r}): time.sleep(0.01)"
    failing = python(f"import os, time\n{wait}\nraise SystemExit(3)", tmp_path / "b.log")
    runs = [
        task("a", training(tmp_path / "a")),
        task("b", failing),
        task("c", touch(tmp_path / "c")),
    ]
    assert exit_code(lambda: run_all(runs, [Place(), Place()])) == 3
    assert (tmp_path / "a.saved").exists() and not (tmp_path / "c").exists()


@pytest.mark.parametrize("parallel", [1, 2])
def test_bad_input_of_a_run_is_raised(parallel):
    def refuse(place):
        raise BadInput("No.")

    with pytest.raises(BadInput, match="No"):
        run_all([("a", refuse)], [Place()] * parallel)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_function_ends_where_it_is_and_handlers_are_restored(tmp_path, number):
    before = [signal.getsignal(each) for each in module.STOP_SIGNALS]

    def work():
        (tmp_path / "began").touch()
        time.sleep(60)

    send_when(number, tmp_path / "began")
    assert exit_code(work) == 75
    assert [signal.getsignal(each) for each in module.STOP_SIGNALS] == before


def test_another_command_is_interrupted_instead(tmp_path):
    program = f"open({str(tmp_path / 'began')!r}, 'w').close(); import time; time.sleep(60)"
    send_when(signal.SIGTERM, tmp_path / "began")
    with pytest.raises(Stopped):
        python(program, tmp_path / "log").run()
