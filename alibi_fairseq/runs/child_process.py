"""A command of this Python, run to its end or until a signal asks it to stop.

torchrun answers SIGTERM by ending its workers 30 seconds later, too soon for a large checkpoint. So a
command runs in a session of its own, where no signal for this process reaches it, and trainings are sent
SIGUSR1 (:mod:`alibi_fairseq.fairseq_patches.shutdown`). If this process is killed, the kernel sends them SIGTERM, and
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
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil
from tqdm import tqdm

from ..data.worker_pool import progress
from ..errors import INTERRUPTED, STOPPED_EARLY, leave_terminal

#: Signals that mean "save and stop"; a second Ctrl-C means "stop now".
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)
#: After a restart torchrun gives the processes the store of the previous round, in which they find
#: each other's old addresses and wait for half an hour (pytorch/pytorch#135712); with this variable
#: each round gets a store of its own.
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
#: Seconds between polls of a command.
INTERVAL = 0.5
#: Becomes the command behind it, which gets SIGTERM when the process with the given number ends.
_WITH_PARENT = """
import ctypes, os, signal, sys
parent, command = int(sys.argv[1]), sys.argv[2:]
# SIGUSR1, blocked until here, must not end a command that does not handle it yet.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG of linux/prctl.h
if os.getppid() != parent:  # it ended before the line above
    sys.exit(128 + signal.SIGTERM)
os.execv(command[0], command)
"""


class Stopped(Exception):
    """The work was asked to stop; what was done is saved."""


class CommandFailedError(Exception):
    """A command failed, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


@contextmanager
def handling_stop_signals(handler: Callable) -> Iterator[None]:
    """Handle ``STOP_SIGNALS`` in the block; SIGHUP only where nohup has not switched it off."""
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


@dataclass
class StopRequest:
    """The first signal that asked this process to stop; another Ctrl-C counts, and means "now"."""

    times: int = 0
    signal: signal.Signals | None = None

    def receive(self, number, frame) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.times += number == signal.SIGINT or not self.times
        if number == signal.SIGHUP:
            leave_terminal()
        print(f"launcher: {signal.Signals(number).name}: saving …", file=sys.stderr, flush=True)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note the signals that ask to stop, instead of acting on them, while the block runs."""
    stop = StopRequest()
    with handling_stop_signals(stop.receive):
        yield stop


@dataclass(frozen=True)
class Slot:
    """Variables of commands, such as the GPUs, and in a thread the request to stop that they obey."""

    environment: Mapping[str, str] = field(default_factory=dict)
    stop: StopRequest | None = None


HERE = Slot()


def execute(
    command: list[str],
    ask: signal.Signals = signal.SIGUSR1,
    log: IO | None = None,
    watch: Callable[[], None] = lambda: None,
    place: Slot = HERE,
) -> int:
    """Run a command, passing requests to stop on to it.

    Args:
        ask: SIGUSR1 asks it to save, again and again until it has ended; SIGINT interrupts a command
            that saves nothing, once.
        watch: called every ``INTERVAL`` while the command runs, and once when it has ended.

    Returns:
        The command's exit code, as in a shell; ``STOPPED_EARLY`` if it saved and stopped as requested.
    """
    asked = False
    with nullcontext(place.stop) if place.stop else stop_requests() as stop:
        process = _start(command, log, {**os.environ, **ENVIRONMENT, **place.environment})
        try:
            while process.poll() is None:
                if stop.times > 1:
                    kill_all(process.pid)
                elif stop.times and not (asked and ask == signal.SIGINT):
                    # Repeatedly: a worker that is still starting does not handle SIGUSR1 yet.
                    _ask_to_stop(process.pid, ask)
                    asked = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(INTERVAL)
                watch()
        finally:
            if process.poll() is None:
                kill_all(process.pid)
    code = process.returncode
    if stop.times and code == 0:
        return STOPPED_EARLY
    return code if code >= 0 else 128 - code


def _start(command: list[str], log: IO | None, environment: Mapping[str, str]) -> subprocess.Popen:
    with_parent = [sys.executable, "-IS", "-c", _WITH_PARENT, str(os.getpid())]
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
        torchrun = "alibi_fairseq.runs.torchrun" in process.cmdline()
        for worker in process.children() if torchrun else [process]:
            worker.send_signal(number)


def kill_all(pid: int) -> None:
    """Kill a process and all its descendants; torchrun's workers are in sessions of their own."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [*process.children(recursive=True), process]:
            member.kill()


@dataclass(frozen=True)
class ChildProcess:
    """A command of this Python.

    Attributes:
        log: the file that the output is appended to, if there is progress to show instead or other
            commands run beside it.
        updates: of a training, which shows its progress and is asked to save; any other command is
            interrupted.
    """

    title: str
    argv: list[str]
    log: Path
    updates: int = 0

    @property
    def line(self) -> str:
        """The command as typed in the repository."""
        return shlex.join(["python", *self.argv[1:]])

    def run(self, place: Slot = HERE) -> None:
        """Run to the end.

        Raises:
            Stopped: it was asked to stop and did.
            Failed: its exit code was not 0.
        """
        if place.stop and place.stop.times:
            raise Stopped
        tqdm.write(f"{self.title}\n  {self.line}", file=sys.stdout)
        sys.stdout.flush()
        ask = signal.SIGUSR1 if self.updates else signal.SIGINT
        if place.stop or self.updates:
            code, reason = self._run_with_log(ask, place)
        else:  # an evaluation with nothing beside it shows its own progress
            code, reason = execute(self.argv, ask, place=place), "see the output above."
        if code in (STOPPED_EARLY, INTERRUPTED):
            raise Stopped
        if code:
            raise CommandFailedError(f"{self.title} failed with exit code {code}; {reason}", code)

    def _run_with_log(self, ask: signal.Signals, place: Slot) -> tuple[int, str]:
        """Exit code, and where to look for the reason."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.log.open("a", encoding="utf-8") as log,
            self.log.open(encoding="utf-8", errors="replace") as output,
            progress(
                self.updates, self.title, "update", unit_scale=False, disable=not self.updates
            ) as bar,
        ):
            log.write(f"$ {self.line}\n")
            log.flush()
            output.seek(0, os.SEEK_END)
            unread, last, error = "", "", ""

            def watch() -> None:
                nonlocal unread, last, error
                *lines, unread = (unread + output.read()).split("\n")
                for line in filter(str.strip, lines):
                    last, error = line, line if ": error: " in line else error
                    advance(bar, line)

            code = execute(self.argv, ask, log, watch, place)
        return code, f"see {self.log}; the last line is: {(error or unread or last).strip()}"


def advance(bar: tqdm, line: str) -> None:
    """Move a bar to what a line of ``fairseq-train --log-format json`` reports, if it reports any."""
    _, brace, rest = line.partition("| train_inner | {")
    if brace:
        seen = json.loads("{" + rest)
        # Not refreshed: in a log, each refresh is a line.
        bar.set_postfix_str(f"loss {seen['loss']} bits", refresh=False)
        bar.update(int(seen["num_updates"]) - bar.n)
