"""One command at a time: whether it is done, running it, and keeping that it is done."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..launcher import STOPPED_EARLY, process
from ..launcher.progress import Progress

#: Running a module, and this package's command.
PYTHON = [sys.executable, "-m"]
ALIBI = [*PYTHON, "alibi_fairseq"]
#: What a Python program that Ctrl-C has ended exits with.
INTERRUPTED = 128 + signal.SIGINT


class Stopped(Exception):
    """A step was told to stop and has kept what it had done."""


class Failed(Exception):
    """A step failed, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


def nothing() -> None:
    """No work."""


@dataclass(frozen=True)
class Step:
    """A command and what surrounds it.

    Attributes:
        title: for the progress display.
        command: the words, Python first.
        done: whether the output is there and was made from what is there now.
        finish: what is left to do when the command has succeeded, keeping that it is done included.
        begin: what has to be done before.
        check: raises BadInput where the step could not be begun; looks only.
        reached: whether the command has succeeded already, and only ``finish`` is left.
        updates: of a training, at its end; 0 for other commands.
        log: takes what a training prints; only its progress bar is shown.
    """

    title: str
    command: list[str]
    done: Callable[[], bool]
    finish: Callable[[], None] = nothing
    begin: Callable[[], None] = nothing
    check: Callable[[], None] = nothing
    reached: Callable[[], bool] = lambda: False
    updates: int = 0
    log: Path | None = None

    @property
    def line(self) -> str:
        """The command as one would type it in the repository."""
        return shlex.join(["python", *self.command[1:]])

    def run(self) -> None:
        """Run it to its end.

        Raises:
            Stopped: it was told to stop first.
            Failed: the command failed.
        """
        self.begin()
        if not self.reached():
            self._command()
        self.finish()

    def _command(self) -> None:
        code = self._train() if self.log else process.run(self.command, interrupt())
        if code in (STOPPED_EARLY, INTERRUPTED):
            raise Stopped
        if code:
            raise Failed(self._why(code), code)

    def _train(self) -> int:
        """Show the progress of a training that writes to its log."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with (
            self.log.open("a", encoding="utf-8") as log,
            self.log.open(encoding="utf-8", errors="replace") as seen,
        ):
            log.write(f"$ {self.line}\n")
            log.flush()
            seen.seek(0, os.SEEK_END)
            bar = Progress(self.title, self.updates)
            unread = [""]

            def watch() -> None:
                *lines, unread[0] = (unread[0] + seen.read()).split("\n")
                for line in lines:
                    bar.see(line)

            try:
                return process.run(self.command, log=log, watch=watch)
            finally:
                bar.close()

    def _why(self, code: int) -> str:
        if not self.log:
            return f"{self.title} failed with exit code {code}; its words are above."
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"{self.title} failed with exit code {code}, see {self.log}; its last words: {last}"


def interrupt() -> Callable[[int], None]:
    """How to ask a command that does not train to stop: once, as Ctrl-C would."""
    sent = []

    def ask(pid: int) -> None:
        if not sent:
            sent.append(pid)
            with suppress(ProcessLookupError):  # it may just have ended
                os.killpg(pid, signal.SIGINT)

    return ask
