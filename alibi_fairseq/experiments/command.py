"""A command of this Python, run to its end or until a signal asks it to stop.

torchrun answers SIGTERM by ending its workers 30 seconds later, too soon for a large checkpoint. So a
command runs in a session of its own, where no signal for this process reaches it, and trainings are sent
SIGUSR1 (:mod:`alibi_fairseq.fairseq_fixes.stopping`). If this process is killed, the kernel sends them SIGTERM, and
they save as well.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import psutil
from tqdm import tqdm

from ..data.parallel import progress
from ..errors import INTERRUPTED, STOPPED_EARLY, leave_terminal

#: Signals that mean "save and stop"; a second Ctrl-C means "stop now".
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
#: After a restart torchrun gives the processes the store of the previous round, in which they find
#: each other's old addresses and wait for half an hour (pytorch/pytorch#135712); with this variable
#: each round gets a store of its own.
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
#: Seconds between polls of a command.
INTERVAL = 0.5
_WITH_PARENT = str(Path(__file__).with_name("with_parent.py"))


class Stopped(Exception):
    """The work was asked to stop; what was done is saved."""


class Failed(Exception):
    """A command failed, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


@contextmanager
def handling_stop_signals(handler: Callable) -> Iterator[None]:
    """Handle ``STOP_SIGNALS`` while the block runs; SIGHUP only where nohup has not switched it off."""
    before = {
        number: signal.signal(number, handler)
        for number in STOP_SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class StopRequest:
    """The signals that ask this process to stop, while the context lasts.

    Attributes:
        times: 0, or 1 after a signal, or more after Ctrl-C was pressed again, which means "now".
        signal: the first one.
    """

    def __init__(self):
        self.times = 0
        self.signal: signal.Signals | None = None
        self._handling = handling_stop_signals(self._receive)

    def _receive(self, number, frame) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.times += number == signal.SIGINT or not self.times
        if number == signal.SIGHUP:
            leave_terminal()
        print(f"launcher: {signal.Signals(number).name}: saving …", file=sys.stderr, flush=True)

    def __enter__(self) -> StopRequest:
        self._handling.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._handling.__exit__(*error)


def execute(
    command: list[str],
    ask: signal.Signals = signal.SIGUSR1,
    log: IO | None = None,
    watch: Callable[[], None] = lambda: None,
    stop: StopRequest | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a command, passing requests to stop on to it.

    Args:
        command: the interpreter and its arguments.
        ask: SIGUSR1 asks it to save, again and again until it has ended; SIGINT interrupts a command
            that saves nothing, once.
        log: receives the command's output, which otherwise goes where this process's goes.
        watch: called every ``INTERVAL`` while the command runs, and once when it has ended.
        stop, environment: see :meth:`Command.run`.

    Returns:
        The command's exit code, as in a shell; ``STOPPED_EARLY`` if it saved and stopped as requested.
    """
    asked = False
    with nullcontext(stop) if stop else StopRequest() as stop:
        process = _start(command, log, {**os.environ, **ENVIRONMENT, **(environment or {})})
        try:
            while process.poll() is None:
                if stop.times > 1:
                    kill_all(process.pid)
                elif stop.times and not (asked and ask == signal.SIGINT):
                    # Repeatedly: a worker that is still starting does not handle SIGUSR1 yet.
                    _ask_to_stop(process.pid, ask)
                    asked = True
                try:
                    process.wait(INTERVAL)
                except subprocess.TimeoutExpired:
                    watch()
            watch()
        finally:
            if process.poll() is None:
                kill_all(process.pid)
    code = process.returncode
    if stop.times and code == 0:
        return STOPPED_EARLY
    return code if code >= 0 else 128 - code


def _start(command: list[str], log: IO | None, environment: Mapping[str, str]) -> subprocess.Popen:
    with_parent = [sys.executable, "-IS", _WITH_PARENT, str(os.getpid())]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # inherited
    try:
        return subprocess.Popen(
            [*with_parent, *command],
            env=environment,
            start_new_session=True,
            stdout=log,
            stderr=log and subprocess.STDOUT,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def _ask_to_stop(pid: int, number: signal.Signals) -> None:
    """Signal the processes that work: the command itself, or torchrun's children."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it has just ended
        if number == signal.SIGINT:
            os.killpg(pid, number)  # as Ctrl-C does
            return
        process = psutil.Process(pid)
        torchrun = "alibi_fairseq.experiments.torchrun" in process.cmdline()
        for worker in process.children() if torchrun else [process]:
            worker.send_signal(number)


def kill_all(pid: int) -> None:
    """Kill a process and all its descendants; torchrun's workers are in sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [*process.children(recursive=True), process]:
            member.kill()


@dataclass(frozen=True)
class Command:
    """A command of this Python.

    Attributes:
        title: for messages, e.g. "training alibi-512".
        argv: the interpreter and its arguments.
        log: the file that the output is appended to; None: the output is shown.
        updates: of a training, at its end. Its progress is shown, and it is asked to save; any other
            command is interrupted.
    """

    title: str
    argv: list[str]
    log: Path | None = None
    updates: int = 0

    @property
    def line(self) -> str:
        """The command as typed in the repository."""
        return shlex.join(["python", *self.argv[1:]])

    def run(
        self, stop: StopRequest | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Run to the end.

        Args:
            stop: in a thread other than the main one: the request to stop that it obeys.
            environment: variables besides those of this process.

        Raises:
            Stopped: it was asked to stop and did.
            Failed: its exit code was not 0.
        """
        if stop and stop.times:
            raise Stopped
        tqdm.write(f"{self.title}\n  {self.line}", file=sys.stdout)
        sys.stdout.flush()
        ask = signal.SIGUSR1 if self.updates else signal.SIGINT
        start = partial(execute, self.argv, ask, stop=stop, environment=environment)
        if self.log and (stop or self.updates):
            code, reason = self._run_with_log(self.log, start)
        else:  # an evaluation with nothing beside it shows its own progress
            code, reason = start(), "see the output above."
        if code in (STOPPED_EARLY, INTERRUPTED):
            raise Stopped
        if code:
            raise Failed(f"{self.title} failed with exit code {code}; {reason}", code)

    def _run_with_log(self, path: Path, start: Callable[..., int]) -> tuple[int, str]:
        """Exit code, and where to look for the reason."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            path.open("a", encoding="utf-8") as log,
            path.open(encoding="utf-8", errors="replace") as output,
        ):
            log.write(f"$ {self.line}\n")
            log.flush()
            output.seek(0, os.SEEK_END)
            bar = TrainingProgress(self.title, self.updates) if self.updates else None
            unread, last, error = "", "", ""

            def watch() -> None:
                nonlocal unread, last, error
                *lines, unread = (unread + output.read()).split("\n")
                for line in filter(str.strip, lines):
                    last, error = line, line if ": error: " in line else error
                    if bar:
                        bar.see(line)

            with closing(bar.bar) if bar else nullcontext():
                code = start(log=log, watch=watch)
        return code, f"see {path}; the last line is: {(error or unread or last).strip()}"


class TrainingProgress:
    """A bar that follows the output of ``fairseq-train --log-format json``."""

    def __init__(self, title: str, updates: int):
        self.bar = progress(updates, title, "update", unit_scale=False)

    def see(self, line: str) -> None:
        """Advance the bar if the line reports the number of updates."""
        _, brace, rest = line.partition("| train_inner | {")
        if not brace:
            return
        seen = json.loads("{" + rest)
        self.bar.update(int(seen["num_updates"]) - self.bar.n)
        self.bar.set_postfix_str(f"loss {seen['loss']} bits")
