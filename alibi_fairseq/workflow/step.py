"""Steps and chains of steps: skipped if done, run otherwise, stopped by signals."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue

from tqdm import tqdm

from ..launcher import STOPPED_EARLY
from ..launcher.process import STOP_SIGNALS, StopRequest
from .command import Command, Failed, Stopped


def nothing() -> None:
    """The default of a step's optional parts."""


@dataclass(frozen=True)
class Step:
    """Work that leaves an output, and how to tell whether it is there.

    Attributes:
        title: for messages, e.g. "training alibi-512".
        work: a command, or a function that runs in this process.
        done: whether the output is there and up to date.
        finish: called when the work has succeeded; usually :meth:`.Stamp.write`.
        begin: called before the work.
        check: raises BadInput if the step could not begin; has no side effects.
        reached: whether the work has succeeded before, so that only ``finish`` is missing.
    """

    title: str
    work: Command | Callable[[], object]
    done: Callable[[], bool]
    finish: Callable[[], None] = nothing
    begin: Callable[[], None] = nothing
    check: Callable[[], None] = nothing
    reached: Callable[[], bool] = lambda: False


def run_step(
    step: Step,
    stop: StopRequest | None = None,
    environment: Mapping[str, str] | None = None,
) -> bool:
    """Run a step unless it is done.

    Args:
        stop: in a thread other than the main one, see :func:`run_chains`.
        environment: variables of a command besides those of this process.

    Returns:
        Whether there was anything to do.

    Raises:
        BadInput: the step cannot begin.
        Stopped, Failed: see :meth:`.Command.run`.
    """
    if stop and stop.times:
        raise Stopped
    if step.done():
        return False
    step.check()
    work = step.work
    line = f"\n  {work.line}" if isinstance(work, Command) else ""
    tqdm.write(step.title + line, file=sys.stdout)
    sys.stdout.flush()
    step.begin()
    if not step.reached():
        if isinstance(work, Command):
            work.run(step.title, stop, environment)
        else:
            work()
    step.finish()
    return True


def run_chains(
    chains: Iterable[tuple[str, Sequence[Step]]],
    parallel: int = 1,
    environments: Sequence[Mapping[str, str]] = (),
) -> bool:
    """Run chains of steps, each chain in its order.

    Chains that are done are skipped; a line before each of the others says how far the work is and
    how long it will take.

    Args:
        chains: name and steps.
        parallel: how many run at a time. Above 1, each has a thread of this process (a step that
            is a function finishes before a request to stop is obeyed), and commands should have
            logs.
        environments: variables of the commands of each chain that runs at a time, such as its GPU.
            Default: one thread each if several run at a time.

    Returns:
        Whether there was anything to do.

    Raises:
        BadInput, Failed: of the first chain that fails; the others are asked to stop.
        Stopped: the process was asked to stop, and everything under way has saved.
    """
    chains = list(chains)
    left = [(name, steps) for name, steps in chains if not all(step.done() for step in steps)]
    before = len(chains) - len(left)
    if before and left:
        print(f"{before} of {len(chains)} are done already.")
    began, finished = time.monotonic(), 0
    free: Queue[Mapping[str, str]] = Queue()
    default = {"OMP_NUM_THREADS": "1"} if parallel > 1 else {}
    for environment in environments or [default] * parallel:
        free.put(environment)

    def run(number: int, stop: StopRequest | None) -> None:
        nonlocal finished
        if stop and stop.times:
            raise Stopped
        name, steps = left[number]
        position = f"[{before + number + 1}/{len(chains)}]"
        tqdm.write(f"\n{position} {name}{remaining(began, finished, len(left))}", file=sys.stdout)
        environment = free.get()
        try:
            for step in steps:
                run_step(step, stop, environment)
        finally:
            free.put(environment)
        finished += 1

    if parallel == 1:
        for number in range(len(left)):
            run(number, None)
    else:
        _run_in_threads(run, len(left), parallel)
    return bool(left)


def _run_in_threads(run: Callable[[int, StopRequest], None], count: int, parallel: int) -> None:
    def run_or_stop_all(number: int) -> None:
        try:
            run(number, stop)
        except BaseException:
            stop.times = stop.times or 1  # before this thread takes the next chain
            raise

    with StopRequest() as stop, ThreadPoolExecutor(parallel) as pool:
        futures = [pool.submit(run_or_stop_all, number) for number in range(count)]
    errors = [error for future in futures if (error := future.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
        raise error


def remaining(began: float, done: int, of: int) -> str:
    """The remaining time if it goes on at the same rate; empty if nothing is done yet."""
    if not done:
        return ""
    minutes = max(1, (time.monotonic() - began) / done * (of - done) / 60)
    amount = f"{minutes:,.0f} min" if minutes < 300 else f"{minutes / 60:,.0f} h"
    return f" (about {amount} left)"


def exit_code(work: Callable[[], object]) -> int:
    """Run ``work`` in the main thread and turn its outcome into an exit code.

    SIGTERM, SIGUSR1 and Ctrl-C stop it: a command under way saves first, anything else ends where
    it is.

    Returns:
        0, or 75 if it was stopped, or the exit code of the command that failed.
    """
    try:
        with _stopped_by_signals():
            work()
    except Stopped:
        print("Stopped; the same command resumes from here.", file=sys.stderr)
        return STOPPED_EARLY
    except Failed as failure:
        print(f"alibi-fairseq: error: {failure}", file=sys.stderr)
        return failure.code
    return 0


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    def stop(number, frame):
        raise Stopped

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
