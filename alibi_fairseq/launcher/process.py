"""Running a training command to its end, or to where it was told to stop."""

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

#: Exit code of a run that saved and stopped because it was told to: start it again later
#: (``EX_TEMPFAIL`` of sysexits.h).
STOPPED_EARLY = 75
#: Signals that mean "save and stop"; Ctrl-C too, and a second Ctrl-C means "now".
STOPPING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
#: After a restart torchrun hands the processes the store of the round before, in which they find
#: each other's old addresses and wait for half an hour (pytorch/pytorch#135712); now each round gets
#: a store of its own.
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
#: Seconds between looks at the run.
INTERVAL = 0.5


class StopRequest:
    """The signals that ask this process to stop, while the context lasts.

    Attributes:
        times: 0, or 1 after a signal, or more after Ctrl-C was pressed again, which means "now".
    """

    def __init__(self):
        self.times = 0

    def _listen(self, number, frame) -> None:
        self.times += number == signal.SIGINT or not self.times
        print(f"launcher: {signal.Signals(number).name}: saving …", file=sys.stderr, flush=True)

    def __enter__(self) -> StopRequest:
        self._before = {number: signal.signal(number, self._listen) for number in STOPPING}
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
    reaches it, and the workers themselves are sent SIGUSR1 (:mod:`alibi_fairseq.preemption`).

    Args:
        ask: how to ask the process with a number to stop, again and again until it does;
            :func:`ask_to_stop` by default.
        log: takes what the command prints, instead of this process's own output.
        watch: called every ``INTERVAL`` while the command runs, and once when it has ended.
        stop: an entered request that several commands obey, each in a thread; by default the
            signals of this command alone, which needs the main thread.
        environment: variables besides those of this process.

    Returns:
        The command's exit code; ``STOPPED_EARLY`` when it saved and stopped as it was told to.
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
                    # Again and again: a worker that is still starting does not listen yet.
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
    """In the new process: the signal must not end one that does not listen yet."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def ask_to_stop(pid: int) -> None:
    """Send SIGUSR1 to the training processes: the command itself, or torchrun's children."""
    try:
        process = psutil.Process(pid)
        workers = process.children() if "torch.distributed.run" in process.cmdline() else [process]
        for worker in workers:
            worker.send_signal(signal.SIGUSR1)
    except psutil.NoSuchProcess:
        pass  # it has just ended


def kill_all(pid: int) -> None:
    """End a process and all it has started; torchrun's workers are in sessions of their own."""
    try:
        process = psutil.Process(pid)
        for member in [*process.children(recursive=True), process]:
            member.kill()
    except psutil.NoSuchProcess:
        pass


def exit_code(process: subprocess.Popen) -> int:
    """As a shell would say it: 128 + the signal that ended it."""
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
