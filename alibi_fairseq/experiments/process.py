"""Running a training command to its end, or until a signal asks it to save and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import psutil

from ..errors import STOPPED_EARLY

#: Signals that mean "save and stop"; a second Ctrl-C means "stop now".
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
#: After a restart torchrun gives the processes the store of the previous round, in which they find
#: each other's old addresses and wait for half an hour (pytorch/pytorch#135712); with this variable
#: each round gets a store of its own.
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
#: Seconds between polls of the run.
INTERVAL = 0.5


class StopRequest:
    """The signals that ask this process to stop, while the context lasts.

    Attributes:
        times: 0, or 1 after a signal, or more after Ctrl-C was pressed again, which means "now".
        signal: the first one.
    """

    def __init__(self):
        self.times = 0
        self.signal: signal.Signals | None = None

    def _listen(self, number, frame) -> None:
        self.signal = self.signal or signal.Signals(number)
        self.times += number == signal.SIGINT or not self.times
        print(f"launcher: {signal.Signals(number).name}: saving …", file=sys.stderr, flush=True)

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.signal(number, self._listen) for number in STOP_SIGNALS}
        return self

    def __exit__(self, *error) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def run(
    command: list[str],
    ask: Callable[[int], None] | None = None,
    log: IO | None = None,
    watch: Callable[[], None] = lambda: None,
    stop: StopRequest | None = None,
    environment: Mapping[str, str] | None = None,
) -> int:
    """Run a training command, passing requests to stop on to the processes that train.

    torchrun answers SIGTERM by ending its workers 30 seconds later, too soon for a large
    checkpoint. So the command runs in a session of its own, where no signal for this process
    reaches it, and the workers themselves are sent SIGUSR1 (:mod:`alibi_fairseq.fairseq_fixes.stopping`).

    Args:
        ask: asks the process with a given pid to stop; called repeatedly until it has ended.
            :func:`ask_to_stop` by default.
        log: receives the command's output, which otherwise goes where this process's goes.
        watch: called every ``INTERVAL`` while the command runs, and once when it has ended.
        stop: an entered request that several commands obey, each in a thread; by default the
            signals of this command alone, which needs the main thread.
        environment: variables besides those of this process.

    Returns:
        The command's exit code; ``STOPPED_EARLY`` if it saved and stopped as requested.
    """
    ask = ask or ask_to_stop
    with nullcontext(stop) if stop else StopRequest() as stop:
        process = subprocess.Popen(
            command,
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            start_new_session=True,
            preexec_fn=ignore_usr1,
            stdout=log,
            stderr=log and subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                if stop.times > 1:
                    kill_all(process.pid)
                elif stop.times:
                    # Repeatedly: a worker that is still starting does not handle the signal yet.
                    ask(process.pid)
                try:
                    process.wait(INTERVAL)
                except subprocess.TimeoutExpired:
                    watch()
            watch()
        finally:
            if process.poll() is None:
                kill_all(process.pid)
    return STOPPED_EARLY if stop.times and process.returncode == 0 else exit_code(process)


def ignore_usr1() -> None:
    """Called in the new process: the signal must not end one that does not handle it yet."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def ask_to_stop(pid: int) -> None:
    """Send SIGUSR1 to the training processes: the command itself, or torchrun's children."""
    try:
        process = psutil.Process(pid)
        workers = (
            process.children()
            if "alibi_fairseq.experiments.torchrun" in process.cmdline()
            else [process]
        )
        for worker in workers:
            worker.send_signal(signal.SIGUSR1)
    except psutil.NoSuchProcess:
        pass  # it has just ended


def kill_all(pid: int) -> None:
    """Kill a process and all its descendants; torchrun's workers are in sessions of their own."""
    try:
        process = psutil.Process(pid)
        for member in [*process.children(recursive=True), process]:
            member.kill()
    except psutil.NoSuchProcess:
        pass


def exit_code(process: subprocess.Popen) -> int:
    """As in a shell: 128 + the number of the signal that ended it."""
    code = process.returncode
    return code if code >= 0 else 128 - code


def has_reached(save_dir: str | os.PathLike, updates: int) -> bool:
    """Whether the last checkpoint of a folder is at so many updates. fairseq, started again on a
    finished run, would make one update more.
    """
    path = Path(save_dir) / "checkpoint_last.pt"
    if not path.is_file():
        return False
    from ..checkpoints.loading import updates_of

    return updates_of(path) >= updates
