"""A subprocess with a log, a progress bar and a way to stop it."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tqdm import tqdm

from ..errors import STOPPED_EARLY
from . import process

#: Exit code of a Python program that Ctrl-C has ended.
INTERRUPTED = 128 + signal.SIGINT


class Stopped(Exception):
    """The work was asked to stop; what was done is saved."""


class Failed(Exception):
    """A command failed, with its exit code."""

    def __init__(self, message: str, code: int):
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Command:
    """A command of this Python.

    Attributes:
        words: the interpreter and its arguments.
        log: the file that the output is appended to; None: the output is shown.
        updates: of a training, at its end. Its progress is shown, and it is asked to stop with
            SIGUSR1, so that it saves; any other command is interrupted as by Ctrl-C.
    """

    words: list[str]
    log: Path | None = None
    updates: int = 0

    @property
    def line(self) -> str:
        """The command as typed in the repository."""
        return shlex.join(["python", *self.words[1:]])

    def run(
        self,
        title: str,
        stop: process.StopRequest | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run to the end.

        Args:
            title: for the progress bar and messages.
            stop: in a thread other than the main one: the request to stop that it obeys.
            environment: variables besides those of this process.

        Raises:
            Stopped: it was asked to stop and did.
            Failed: its exit code was not 0.
        """
        ask = process.ask_to_stop if self.updates else interrupt_once()
        start = partial(process.run, self.words, ask=ask, stop=stop, environment=environment)
        alone = stop is None  # then an evaluation may show its own progress
        log = None if alone and not self.updates else self.log
        code = self._run_with_log(log, title, start) if log else start()
        if code in (STOPPED_EARLY, INTERRUPTED):
            raise Stopped
        if code:
            raise Failed(f"{title} failed with exit code {code}; {_hint(log)}", code)

    def _run_with_log(self, path: Path, title: str, start: Callable[..., int]) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            path.open("a", encoding="utf-8") as log,
            path.open(encoding="utf-8", errors="replace") as output,
        ):
            log.write(f"$ {self.line}\n")
            log.flush()
            if not self.updates:
                return start(log=log)
            output.seek(0, os.SEEK_END)
            bar = TrainingProgress(title, self.updates)
            unread = ""

            def watch() -> None:
                nonlocal unread
                *lines, unread = (unread + output.read()).split("\n")
                for line in lines:
                    bar.see(line)

            try:
                return start(log=log, watch=watch)
            finally:
                bar.close()


def _hint(log: Path | None) -> str:
    if not log:
        return "see the output above."
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    return f"see {log}; the last line is: {last.strip()}"


def interrupt_once() -> Callable[[int], None]:
    """How to stop a command that does not train: Ctrl-C to its process group, once."""
    sent: list[int] = []

    def ask(pid: int) -> None:
        if not sent:
            sent.append(pid)
            with suppress(ProcessLookupError):  # it may just have ended
                os.killpg(pid, signal.SIGINT)

    return ask


class TrainingProgress:
    """A bar that follows the output of ``fairseq-train --log-format json``."""

    def __init__(self, title: str, updates: int):
        self.bar = tqdm(total=updates, desc=title, unit="update", dynamic_ncols=True)

    def see(self, line: str) -> None:
        """Advance the bar if the line reports the number of updates."""
        _, brace, rest = line.partition("| train_inner | {")
        if not brace:
            return
        seen = json.loads("{" + rest)
        self.bar.update(int(seen["num_updates"]) - self.bar.n)
        self.bar.set_postfix_str(f"loss {seen['loss']} bits")

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.close()
