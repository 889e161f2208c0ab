"""Commands in processes of their own, and signals that end them at moments chosen in advance."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from commands import ROOT

#: Seconds after which a command that was told to stop has failed.
PATIENCE = 300
PAUSE = 0.01  # seconds between two looks


@dataclass(frozen=True)
class Moment:
    """When to send which signal.

    Attributes:
        begun: after the work itself has begun; otherwise after the start of the process.
        seconds: after that.
        number: of the signal.
        whole: SIGKILL for all processes at once, as when a machine is lost; otherwise the signal is
            for the command alone, or for one of the processes that train together.
        which: the process that receives a signal for one of several.
        during: then wait for this phase.
    """

    begun: bool
    seconds: float
    number: signal.Signals
    whole: bool
    which: int = 0
    during: str = ""


@dataclass
class Attempt:
    """How one start of a command ended.

    Attributes:
        codes: exit codes of its processes, negative for a signal.
        said: what it printed.
        hit: whether the signal was sent before the command came to its end.
        phase: where it was when the signal was sent.
        seconds: from its start to its end, and the same from when its work had begun.
    """

    codes: list[int]
    said: str
    hit: bool = False
    phase: str = ""
    seconds: float = 0.0
    work_seconds: float = 0.0


@dataclass
class Processes:
    """The processes of one command, which write to one log."""

    words: list[str]
    log: Path
    count: int = 1
    started: list[psutil.Popen] = field(default_factory=list)

    def start(self) -> None:
        jobs: list[dict] = [{}]
        if self.count > 1:  # as srun starts them
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": self.count}
            jobs = [{**job, "RANK": rank} for rank in range(self.count)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        for job in jobs:
            with self.log.open("a") as log:
                process = psutil.Popen(
                    [sys.executable, "-u", "-m", "alibi_fairseq", *self.words],
                    env={**environment, **{key: str(value) for key, value in job.items()}},
                    cwd=self.log.parent,
                    stdout=log,
                    stderr=log,
                )
            self.started.append(process)

    @property
    def running(self) -> bool:
        return any(process.poll() is None for process in self.started)

    @property
    def failed(self) -> bool:
        """Whether one of several has ended, and not well."""
        codes = [process.poll() for process in self.started]
        return self.count > 1 and any(code not in (None, 0) for code in codes)

    def all(self) -> list[psutil.Process]:
        """The processes and their descendants."""
        found: list[psutil.Process] = []
        for process in self.started:
            with suppress(psutil.NoSuchProcess):
                found += [process, *process.children(recursive=True)]
        return found

    def send(self, moment: Moment) -> list[psutil.Process]:
        """Send the signal; returns descendants that are left without the command."""
        everything = self.all()
        if moment.number == signal.SIGKILL and (moment.whole or self.count > 1):
            receivers, left = everything, []
        else:
            receivers = [self.started[moment.which % self.count]]
            left = [process for process in everything if process not in self.started]
        for process in receivers:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(moment.number)
        return left


def attempt(
    words: list,
    log: Path,
    count: int,
    begun: Callable[[str], bool],
    moment: Moment | None = None,
    phase: Callable[[str], str] = lambda said: "",
) -> Attempt:
    """Start a command and end it at a moment, or wait for its end.

    Args:
        words: of ``alibi-fairseq``.
        log: an output file, which is replaced.
        count: processes that train together.
        begun: whether the work has begun, by what was printed.
        moment: when to end it.
        phase: where it is, by what was printed.

    Raises:
        TimeoutError: a process did not end.
    """
    log.write_text("")
    processes = Processes([str(word) for word in words], log, count)
    start, work, left, result = time.monotonic(), 0.0, [], Attempt([], "")
    processes.start()
    try:
        while processes.running:
            now = time.monotonic()
            if not work and begun(log.read_text(errors="replace")):
                work = now
            if moment and not result.hit and _due(moment, start, work, now):
                result.phase = phase(log.read_text(errors="replace"))
                if moment.during in ("", result.phase):
                    left, result.hit = processes.send(moment), True
                    deadline = now + PATIENCE
            if result.hit and not work and processes.failed:
                # As srun does with --kill-on-bad-exit: one whose partner ended before they had met
                # would look for it for half an hour, which is PyTorch's limit.
                _kill(processes.all())
            if result.hit and now > deadline:
                raise TimeoutError(f"{words[0]} did not end after {moment}")
            time.sleep(PAUSE)
        psutil.wait_procs(left, timeout=PATIENCE)
    finally:
        _kill(processes.all())
    end = time.monotonic()
    result.codes = [process.wait() for process in processes.started]
    result.said = log.read_text(errors="replace")
    result.seconds, result.work_seconds = end - start, end - (work or end)
    return result


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _due(moment: Moment, start: float, work: float, now: float) -> bool:
    since = work if moment.begun else start
    return bool(since) and now - since >= moment.seconds
