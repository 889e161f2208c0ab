"""Commands of a run: child processes with a title, a log, and a progress bar.

The bar follows the log, which also has the reason of a failure.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tqdm import tqdm

from ..errors import ERROR, INTERRUPTED, STOPPED_EARLY, escape_unprintable
from ..progress_bar import make_progress_bar
from .slots import DEFAULT_SLOT, Slot
from .stoppable_command import execute_command
from .stopping import Stopped

#: The command ``alibi-fairseq`` of this Python.
ALIBI = (sys.executable, "-m", "alibi_fairseq")
#: Percentage in a progress bar of a command, which is a line of its log.
_PERCENTAGE = re.compile(r": +(\d+)%\|")


class CommandFailedError(Exception):
    """Failure of a command.

    Attributes:
        code: exit code of the command.
        was_stopping: True if it failed after a request to stop, for example because it could not
            save.
    """

    def __init__(self, message: str, code: int, was_stopping: bool = False):
        super().__init__(message)
        self.code = code
        self.was_stopping = was_stopping


@dataclass(frozen=True)
class ChildProcess:
    """Command of this Python, run in a child process.

    Attributes:
        title: what the command does, for messages.
        argv: interpreter and arguments.
        log: file to which the command and its output are appended. Unless it trains or other
            commands run concurrently, its progress and errors (stderr) are shown instead.
        updates: number of updates if the command trains, otherwise 0. A training saves when it is
            asked to stop. Any other command is interrupted.
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
        is_concurrent = slot.stop is not None  # the scheduler's request
        errors_in_log = is_concurrent or self.is_training
        with slot.stop_requests() as stop:
            slot = replace(slot, stop=stop)
            if errors_in_log:
                code = self._run_with_log(stop_signal, slot)
            else:
                with self._open_log() as log:
                    code = execute_command(self.argv, stop_signal, log, slot=slot, show_errors=True)
        if code in (STOPPED_EARLY, INTERRUPTED):
            raise Stopped
        if code:
            advice = "See the output above."
            if errors_in_log:
                advice = f"See {self.log}. Its last line is: {read_reason(self.log)}"
            message = f"{self.title} failed with exit code {code}. {advice}"
            raise CommandFailedError(message, code, was_stopping=stop.count > 0)

    def _run_with_log(self, stop_signal: signal.Signals, slot: Slot) -> int:
        """Run the command with its output in the log, and return the exit code."""
        if self.is_training:
            bar = make_progress_bar(self.updates, self.title, "update", unit_scale=False)
            advance = advance_to_update
        else:
            bar = make_progress_bar(100, self.title, "%", unit_scale=False)
            advance = advance_to_percentage
        with (
            self._open_log() as log,
            self.log.open(encoding="utf-8", errors="replace") as output,
            bar,
        ):
            output.seek(0, os.SEEK_END)
            reader = LogReader(output, bar, advance)
            return execute_command(self.argv, stop_signal, log, reader.read, slot)

    def _open_log(self) -> IO:
        """Open the log to append to it, and write the command line."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        log = self.log.open("a", encoding="utf-8")
        log.write(f"$ {self.command_line}\n")
        log.flush()
        return log


@dataclass
class LogReader:
    """Reader of the lines that a command appends to its log.

    Attributes:
        output: the log, at the position from which it is read.
        bar: progress bar.
        advance: function that moves the bar to the progress in a line, if any.
        unread: incomplete last line.
    """

    output: IO
    bar: tqdm
    advance: Callable[[tqdm, str], None]
    unread: str = ""

    def read(self) -> None:
        """Read the lines that were appended since the last call."""
        text = self.unread + self.output.read()
        *complete_lines, self.unread = text.split("\n")
        for line in complete_lines:
            self.advance(self.bar, line)


def read_reason(log: Path) -> str:
    """Return the line of a log that most likely gives the reason for which its last command failed.

    It is empty if the log has no output of the command.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    _, _, last_command = text.rpartition("\n$ ")
    _, *output = last_command.splitlines() or [""]
    lines = [line.strip() for line in output if line.strip()]
    errors = [line for line in lines if ERROR in line]
    return escape_unprintable((errors or lines or [""])[-1])


def advance_to_percentage(bar: tqdm, line: str) -> None:
    """Move a bar to the percentage in a line of a command's own progress bar, if any."""
    percentage = _PERCENTAGE.search(line)
    if percentage:
        bar.update(int(percentage[1]) - bar.n)


def advance_to_update(bar: tqdm, line: str) -> None:
    """Move a bar to the update in a line of ``fairseq-train --log-format json``, if any."""
    _, brace, rest = line.partition("| train_inner | {")
    if not brace:
        return
    report = json.loads("{" + rest)
    updates = int(report["num_updates"])
    # Not refreshed: in a log, each refresh is a line.
    bar.set_postfix_str(f"loss {report['loss']} bits", refresh=False)
    if bar.n == 0:
        _start_at(bar, updates)
    else:
        bar.update(updates - bar.n)


def _start_at(bar: tqdm, updates: int) -> None:
    """Start the clock of a bar at its first update.

    A resumed training did all updates before that one earlier, so they do not count for the rate.
    """
    bar.initial = updates
    bar.n = updates
    bar.last_print_n = updates
    bar.unpause()
