"""Commands of a run: child processes with a title, a log, and a progress bar."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tqdm import tqdm

from ..errors import INTERRUPTED, STOPPED_EARLY
from ..progress_bar import make_progress_bar
from .execution import DEFAULT_SLOT, Slot, Stopped, execute_command
from .log_reader import LogReader

#: The command ``alibi-fairseq`` of this Python.
ALIBI = (sys.executable, "-m", "alibi_fairseq")


class CommandFailedError(Exception):
    """Failure of a command, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class ChildProcess:
    """Command of this Python, run in a child process.

    Attributes:
        title: what the command does, for messages.
        argv: interpreter and arguments.
        log: file to which the command and its output are appended. Unless it trains or other
            commands run concurrently, its progress and errors (stderr) are shown instead.
        updates: number of updates if the command trains, otherwise 0. A training has a progress
            bar, and saves when it is asked to stop. Any other command is interrupted.
    """

    title: str
    argv: list[str]
    log: Path
    updates: int = 0

    @property
    def is_training(self) -> bool:
        """True if the command trains a model."""
        return self.updates > 0

    @property
    def command_line(self) -> str:
        """Command line as typed in the repository."""
        return shlex.join(["python" if word == sys.executable else word for word in self.argv])

    def run(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Run the command to its end.

        Raises:
            Stopped: the command was asked to stop and did.
            CommandFailedError: its exit code was not 0.
        """
        if slot.stop and slot.stop.count:
            raise Stopped
        tqdm.write(f"{self.title} (log: {self.log})", file=sys.stdout)
        sys.stdout.flush()
        stop_signal = signal.SIGUSR1 if self.is_training else signal.SIGINT
        if slot.stop or self.is_training:
            code, advice = self._run_with_log(stop_signal, slot)
        else:
            # Nothing runs concurrently, so an evaluation can show its progress.
            with self._open_log() as log:
                code = execute_command(self.argv, stop_signal, log, slot=slot, show_errors=True)
            advice = "See the output above."
        if code in (STOPPED_EARLY, INTERRUPTED):
            raise Stopped
        if code:
            raise CommandFailedError(f"{self.title} failed with exit code {code}. {advice}", code)

    def _run_with_log(self, stop_signal: signal.Signals, slot: Slot) -> tuple[int, str]:
        """Run the command with its output in the log.

        Returns:
            The exit code, and a sentence that names the log and its most informative line.
        """
        with (
            self._open_log() as log,
            self.log.open(encoding="utf-8", errors="replace") as output,
            make_progress_bar(
                self.updates, self.title, "update", unit_scale=False, disable=not self.is_training
            ) as bar,
        ):
            output.seek(0, os.SEEK_END)
            reader = LogReader(output, bar)
            code = execute_command(self.argv, stop_signal, log, reader.read, slot)
        return code, f"See {self.log}. Its last line is: {reader.reason}"

    def _open_log(self) -> IO:
        """Open the log to append to it, and write the command line."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        log = self.log.open("a", encoding="utf-8")
        log.write(f"$ {self.command_line}\n")
        log.flush()
        return log
