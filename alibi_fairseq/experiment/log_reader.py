"""Progress of a command, and the reason of its failure, from the lines of its log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tqdm import tqdm

#: Part of the line by which a command reports an error (:func:`..errors.print_error`).
ERROR = ": error: "


@dataclass
class LogReader:
    """Reader of the lines that a command appends to its log.

    Attributes:
        output: the log, at the position from which it is read.
        bar: progress bar, moved by the lines of a training.
        unread: incomplete last line.
        last_line: last complete line that is not blank.
        error_line: last line that reports an error.
    """

    output: IO
    bar: tqdm
    unread: str = ""
    last_line: str = ""
    error_line: str = ""

    def read(self) -> None:
        """Read the lines that were appended since the last call."""
        text = self.unread + self.output.read()
        *complete_lines, self.unread = text.split("\n")
        for line in complete_lines:
            if not line.strip():
                continue
            self.last_line = line
            if ERROR in line:
                self.error_line = line
            advance(self.bar, line)

    @property
    def reason(self) -> str:
        """Line that most likely gives the reason of a failure."""
        return (self.error_line or self.unread or self.last_line).strip()


def read_reason(log: Path) -> str:
    """Return the line of a log that most likely gives the reason for which its last command failed.

    It is empty if the log has no output of the command.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    _, _, last_command = text.rpartition("\n$ ")
    _, *output = last_command.splitlines() or [""]
    lines = [line.strip() for line in output if line.strip()]
    errors = [line for line in lines if ERROR in line]
    return (errors or lines or [""])[-1]


def advance(bar: tqdm, line: str) -> None:
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
