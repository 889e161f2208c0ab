"""Execution of a command until it ends or a signal asks it to stop.

torchrun answers SIGTERM by ending its workers 30 seconds later, too soon for a large checkpoint.
Stopping therefore works as follows:

- A command runs in its own session, which receives no signal meant for this process.
- This process records its stop signals (:mod:`.stopping`). It then sends SIGUSR1 to trainings,
  which save and stop (:mod:`alibi_fairseq.plugin.shutdown`), and SIGINT to other commands.
- If this process is killed, the kernel sends the commands SIGTERM. Trainings save as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

import psutil

from ..errors import INTERRUPTED, STOPPED_EARLY
from .slots import DEFAULT_SLOT, Slot
from .torchrun import MODULE as TORCHRUN

#: Variables of every child process. After a restart, torchrun gives the workers the store of the
#: previous round, in which they find old addresses and wait for half an hour
#: (pytorch/pytorch#135712). With this variable, each round has its own store.
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
#: Seconds between polls of a child process.
POLL_SECONDS = 0.5
#: Program that replaces itself with a command, which receives SIGTERM when the given parent process
#: ends.
_WITH_PARENT = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
command = sys.argv[2:]
# SIGUSR1, blocked until here, must not end a command that does not handle it yet.
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG of linux/prctl.h
if os.getppid() != parent:  # it ended before the line above
    sys.exit(128 + signal.SIGTERM)
os.execvp(command[0], command)
"""


def execute_command(
    command: list[str],
    stop_signal: signal.Signals = signal.SIGUSR1,
    log: IO | None = None,
    watch: Callable[[], None] = lambda: None,
    slot: Slot = DEFAULT_SLOT,
    show_errors: bool = False,
) -> int:
    """Run a command and pass stop requests on to it.

    Args:
        stop_signal: SIGUSR1 asks the command to save, repeatedly until it ends. SIGINT interrupts a
            command that saves nothing, once.
        log: file for the output (default: the output of this process).
        watch: function called every ``POLL_SECONDS`` while the command runs, and once at its end.
        show_errors: True to keep stderr, with progress bars and errors, out of the log.

    Returns:
        The exit code of the command, as in a shell; ``STOPPED_EARLY`` if it saved and stopped on
        request, and ``INTERRUPTED`` if it was killed at the second one.
    """
    environment = {**os.environ, **ENVIRONMENT, **slot.environment}
    # SIGUSR1 is sent repeatedly, because a worker that is still starting does not handle it yet.
    repeats_signal = stop_signal != signal.SIGINT
    signaled = False
    with slot.stop_requests() as stop:
        process = _start(command, log, environment, show_errors)
        try:
            while process.poll() is None:
                if stop.count > 1:
                    kill_all(process.pid)
                elif stop.count and (repeats_signal or not signaled):
                    _send_stop_signal(process.pid, stop_signal)
                    signaled = True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                watch()
        finally:
            if process.poll() is None:
                kill_all(process.pid)
    code = process.returncode
    if stop.count > 1:
        return INTERRUPTED
    if stop.count and code == 0:
        return STOPPED_EARLY
    if code < 0:
        return 128 - code
    return code


def _start(
    command: list[str], log: IO | None, environment: Mapping[str, str], show_errors: bool
) -> subprocess.Popen:
    """Start a command in a new session, with SIGUSR1 blocked until the command can ignore it."""
    with_parent = [sys.executable, "-IS", "-c", _WITH_PARENT, str(os.getpid())]
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # inherited
    try:
        return subprocess.Popen(
            [*with_parent, *command],
            env=environment,
            start_new_session=True,
            stdout=log,
            stderr=None if log is None or show_errors else subprocess.STDOUT,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


def _send_stop_signal(pid: int, number: signal.Signals) -> None:
    """Signal the working processes: the command itself, or the workers of torchrun."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):  # it has just ended
        if number == signal.SIGINT:
            os.killpg(pid, number)  # as Ctrl-C does
            return
        process = psutil.Process(pid)
        workers = [process]
        # Not of the launcher of several nodes, which passes the signal on to each node.
        if process.cmdline()[1:3] == ["-m", TORCHRUN]:
            workers = process.children()
        for worker in workers:
            worker.send_signal(number)


def kill_all(pid: int) -> None:
    """Kill a process and all descendants, including torchrun's workers in other sessions."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in [*process.children(recursive=True), process]:
            member.kill()
