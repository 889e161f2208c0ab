"""Carries out experiments: prepares the data, trains and evaluates the runs, reports.

What is done is skipped, several runs go on at a time, each on GPUs or cores of its own, and a signal
saves and stops all of them; the same command resumes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import TYPE_CHECKING, Protocol

from tqdm import tqdm

from ..data.parallel import cores
from ..errors import STOPPED_EARLY, leave_terminal
from ..files import locked
from .command import Command, Failed, Stopped, StopRequest, handling_stop_signals

if TYPE_CHECKING:
    from .run import Run


class Experiment(Protocol):
    """Data, runs that need it, and a report of them.

    Attributes:
        folder: the folder for everything.
        option: the flag that names it.
        gpus: GPUs of each run, where there are any; 0: none.
        threads: CPU threads of each run; None: its share of the cores.
        partial: the report is also written when not all runs are done.
    """

    @property
    def folder(self) -> Path: ...

    @property
    def option(self) -> str: ...

    @property
    def gpus(self) -> int: ...

    @property
    def threads(self) -> int | None: ...

    @property
    def partial(self) -> bool: ...

    @property
    def prepared(self) -> bool:
        """Whether the data is there."""

    def prepare(self) -> None:
        """Make the data, after checking all that can be checked before."""

    @property
    def runs(self) -> list[Run]:
        """The runs in the order of their importance; complete once the data is there."""

    def report(self) -> None:
        """Write and print the outcome."""

    def cost(self) -> str:
        """What the runs cost, for a dry run."""


def carry_out(
    experiment: Experiment,
    parallel: int | None = None,
    hours: float | None = None,
) -> int:
    """Do what is not done yet.

    Args:
        parallel: number of runs at a time. Default: one per share of the GPUs, or one per core.
        hours: do only runs that fit into them on this machine.

    Returns:
        0; 75 if it was asked to stop; otherwise the exit code of the command that failed.

    Raises:
        BadInput: something is wrong that can be checked before the work.
    """

    from .hours import that_fit

    def everything() -> None:
        with locked(experiment.folder / "lock", experiment.option, "command"):
            experiment.prepare()
            runs = experiment.runs
            left = [run for run in runs if not run.done]
            try:
                if left:
                    at_once = parallel or default_parallel(experiment, len(left))
                    places = places_for(at_once, experiment.gpus, experiment.threads)
                    if len(left) < len(runs):
                        print(f"{len(runs) - len(left)} of {len(runs)} runs are done already.")
                    if hours is not None:
                        left = that_fit(left, at_once, experiment.threads, hours)
                    run_chains([(run.name, run.steps()) for run in left], places)
                else:
                    print(f"All {len(runs)} runs are done already.")
            except (Stopped, Failed):
                if experiment.partial:
                    experiment.report()
                raise
            experiment.report()

    return exit_code(everything)


def describe(experiment: Experiment) -> str:
    """Every command of an experiment in its order, and what they cost."""
    lines = []
    runs = experiment.runs
    for number, run in enumerate(runs, 1):
        lines.append(f"# [{number}/{len(runs)}] {run.name}")
        for step in run.steps():
            lines.append(step.work.line if isinstance(step.work, Command) else f"# {step.title}")
        lines.append("")
    return "\n".join([*lines, experiment.cost()])


def default_parallel(experiment: Experiment, runs: int) -> int:
    """Number of runs at a time that the machine has room for."""
    import torch

    gpus = torch.cuda.device_count() if experiment.gpus else 0
    return max(1, min(runs, gpus // experiment.gpus if gpus else cores()))


def places_for(parallel: int, gpus: int, threads: int | None = None) -> list[dict[str, str]]:
    """Environment variables of the runs that go on at the same time: GPUs, or a share of the cores.

    Args:
        gpus: GPUs of each run.
        threads: CPU threads of each run; None: its share of the cores.
    """
    import torch

    there = torch.cuda.device_count() if gpus else 0
    if not there:
        return [{"OMP_NUM_THREADS": str(threads or max(1, cores() // parallel))}] * parallel
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(there)]
    places = []
    for first in range(0, parallel * gpus, gpus):
        share = [names[number % there] for number in range(first, first + gpus)]
        places.append({"CUDA_VISIBLE_DEVICES": ",".join(share)})
    return places


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
    chains: Sequence[tuple[str, Sequence[Step]]], places: Sequence[Mapping[str, str]]
) -> None:
    """Run chains of steps, each chain in its order.

    A line before each chain says how far the work is and how long it will take.

    Args:
        chains: name and steps.
        places: environment variables of the chains that run at the same time. With several, each
            has a thread of this process (a step that is a function finishes before a request to
            stop is obeyed).

    Raises:
        BadInput, Failed: of the first chain that fails; the others are asked to stop.
        Stopped: the process was asked to stop, and everything under way has saved.
    """
    began, finished = time.monotonic(), 0
    free: Queue[Mapping[str, str]] = Queue()
    for place in places:
        free.put(place)

    def run(number: int, stop: StopRequest | None) -> None:
        nonlocal finished
        if stop and stop.times:
            raise Stopped
        name, steps = chains[number]
        left = remaining(began, finished, len(chains))
        tqdm.write(f"\n[{number + 1}/{len(chains)}] {name}{left}", file=sys.stdout)
        place = free.get()
        try:
            for step in steps:
                run_step(step, stop, place)
        finally:
            free.put(place)
        finished += 1

    if len(places) == 1:
        for number in range(len(chains)):
            run(number, None)
    else:
        _run_in_threads(run, len(chains), len(places))


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

    SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C stop it: a command under way saves first, anything else ends where
    it is.

    Returns:
        0, or 75 if it was stopped, or the exit code of the command that failed.
    """

    def stop(number, frame):
        if number == signal.SIGHUP:
            leave_terminal()
        raise Stopped

    try:
        with handling_stop_signals(stop):
            work()
    except Stopped:
        print("Stopped; the same command resumes from here.", file=sys.stderr)
        return STOPPED_EARLY
    except Failed as failure:
        print(f"alibi-fairseq: error: {failure}", file=sys.stderr)
        return failure.code
    return 0
