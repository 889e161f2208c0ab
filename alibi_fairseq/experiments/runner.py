"""Carries out experiments: prepares the data, trains and evaluates the runs, reports.

What is done is skipped, several runs go on at a time, each on GPUs or cores of its own, and a signal
saves and stops all of them; the same command resumes.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from queue import Queue
from typing import Protocol

from tqdm import tqdm

from ..data.parallel import cores
from ..errors import STOPPED_EARLY, leave_terminal
from ..files import locked
from .command import Failed, Place, Stopped, StopRequest, handling_stop_signals, stop_requests
from .hours import duration, that_fit
from .run import Run, trials_of


class Experiment(Protocol):
    """Data, runs that need it, and a report of them."""

    folder: Path
    option: str = "--work-dir"  # names the folder
    threads: int | None = None  # of each run on a CPU (default: its share of the cores)
    partial: bool = False  # the report is also written when not all runs are done

    @property
    def gpus(self) -> int:
        """GPUs of each run, where there are any."""
        return 1

    @property
    def prepared(self) -> bool:
        """Whether the data is there."""

    def prepare(self) -> None:
        """Make the data, after checking all that can be checked before."""

    @property
    def runs(self) -> Sequence[Run]:
        """The runs in the order of their importance; complete once the data is there."""

    def report(self) -> None:
        """Write and print the outcome."""

    def cost(self) -> str:
        """What the runs cost, for a dry run."""


def carry_out(
    experiment: Experiment, parallel: int | None = None, hours: float | None = None
) -> int:
    """Do what is not done yet and fits into ``hours``; returns an exit code, see :func:`exit_code`."""

    def everything() -> None:
        with locked(experiment.folder / "lock", experiment.option, "command"):
            experiment.prepare()
            runs = experiment.runs
            left = [run for run in runs if not run.done]
            if len(left) < len(runs):
                done = f"{len(runs) - len(left)} of {len(runs)}" if left else f"All {len(runs)}"
                print(f"{done} runs are done already.")
            most = max(len(left), len(trials_of(left)))
            at_once = parallel or default_parallel(experiment, most)
            places = places_for(at_once, experiment.gpus, experiment.threads)
            try:
                if left and hours is not None:
                    left = that_fit(left, at_once, experiment.threads, hours)
                for group in in_turns(left) if experiment.partial else [left]:
                    if trials := trials_of(group):
                        run_all([(trial.name, trial.carry_out) for trial in trials], places)
                        names = {run.name for run in group}
                        group = [run for run in experiment.runs if run.name in names]
                    run_all([(run.name, run.carry_out) for run in group], places)
            except (Stopped, Failed):
                if experiment.partial:
                    experiment.report()
                raise
            experiment.report()

    return exit_code(everything)


def in_turns(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs in their order, each group with the same trials, so that the important ones finish first."""
    trials = groupby(runs, key=lambda run: [trial.name for trial in trials_of([run])])
    return [list(group) for _, group in trials]


def describe(experiment: Experiment) -> str:
    """Every command of an experiment in its order, and what they cost."""
    lines, runs = [], experiment.runs
    runs = [*trials_of(runs), *runs]
    for number, run in enumerate(runs, 1):
        best = " (--lr: the best of its trials)" if trials_of([run]) else ""
        lines.append(f"# [{number}/{len(runs)}] {run.name}{best}")
        lines += [*(command.line for command in run.commands()), ""]
    return "\n".join([*lines, experiment.cost()])


def default_parallel(experiment: Experiment, runs: int) -> int:
    """Number of runs at a time that the machine has room for."""
    import torch

    gpus = torch.cuda.device_count() if experiment.gpus else 0
    return max(1, min(runs, gpus // experiment.gpus if gpus else cores()))


def places_for(parallel: int, gpus: int, threads: int | None = None) -> list[Place]:
    """The places of runs that go on at the same time, with GPUs or a share of the cores each."""
    import torch

    there = torch.cuda.device_count() if gpus else 0
    if not there:
        share = str(threads or max(1, cores() // parallel))
        return [Place({"OMP_NUM_THREADS": share})] * parallel
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(there)]
    shares = [
        ",".join(names[number % there] for number in range(first, first + gpus))
        for first in range(0, parallel * gpus, gpus)
    ]
    return [Place({"CUDA_VISIBLE_DEVICES": share}) for share in shares]


def run_all(work: Sequence[tuple[str, Callable[[Place], None]]], places: Sequence[Place]) -> None:
    """Carry out runs or jobs, by name, with a thread of this process for each of several places.

    Raises:
        BadInput, Failed: of the first that fails; the others are asked to stop.
        Stopped: the process was asked to stop, and everything under way has saved.
    """
    began, finished = time.monotonic(), 0
    free: Queue[Place] = Queue()
    for place in places:
        free.put(place)

    def carry_out_one(number: int, stop: StopRequest | None) -> None:
        nonlocal finished
        if stop and stop.times:
            raise Stopped
        name, do = work[number]
        left = ""
        if finished:  # if it goes on at the same rate
            seconds = (time.monotonic() - began) / finished * (len(work) - finished)
            left = f" (about {duration(max(60, seconds))} left)"
        tqdm.write(f"\n[{number + 1}/{len(work)}] {name}{left}", file=sys.stdout)
        place = free.get()
        try:
            do(replace(place, stop=stop))
        except BaseException:
            if stop:  # before this thread takes the next one
                stop.times = stop.times or 1
            raise
        finally:
            free.put(place)
        finished += 1

    if len(places) == 1:
        for number in range(len(work)):
            carry_out_one(number, None)
        return
    with stop_requests() as stop, ThreadPoolExecutor(len(places)) as pool:
        futures = [pool.submit(carry_out_one, number, stop) for number in range(len(work))]
    errors = [error for future in futures if (error := future.exception())]
    for error in sorted(errors, key=lambda error: isinstance(error, Stopped)):
        raise error


def exit_code(work: Callable[[], object]) -> int:
    """Run ``work`` in the main thread; returns 0, 75 if it was stopped, or the code of what failed.

    SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C stop it: a command under way saves first, anything else ends where
    it is.
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
