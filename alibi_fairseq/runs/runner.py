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
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol

from tqdm import tqdm

from ..data.worker_pool import cores
from ..errors import STOPPED_EARLY, leave_terminal
from ..files import locked
from .child_process import INTERVAL, CommandFailedError, Slot, Stopped, handling_stop_signals, stop_requests
from .run import Run, all_trials, trials_left


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

    def notes(self) -> list[str]:
        """Lines of a dry run, in front of those of the runs."""
        return []


def execute_experiment(experiment: Experiment, parallel: int | None = None) -> int:
    """Do what is not done yet; returns an exit code, see :func:`exit_code`."""

    def everything() -> None:
        with locked(experiment.folder / "lock", experiment.option, "command"):
            experiment.prepare()
            runs = experiment.runs
            left = [run for run in runs if not run.done]
            if len(left) < len(runs):
                done = f"{len(runs) - len(left)} of {len(runs)}" if left else f"All {len(runs)}"
                print(f"{done} runs are done already.")
            tasks = tasks_of(experiment, left)
            try:
                run_all(tasks, make_slots(experiment, runs, parallel))
            except (Stopped, CommandFailedError):
                if experiment.partial:
                    experiment.report()
                raise
            experiment.report()

    return exit_code(everything)


@dataclass(frozen=True)
class WorkItem:
    """A piece of work, which can begin when the tasks named in ``after`` are done."""

    name: str
    do: Callable[[Slot], None]
    updates: int = 1  # in proportion to its time
    after: tuple[str, ...] = ()


def tasks_of(experiment: Experiment, runs: Iterable[Run]) -> list[WorkItem]:
    """The runs in their order, each behind the trials that are left to choose its learning rate."""
    tasks: dict[str, WorkItem] = {}

    def tuned(name: str, place: Slot) -> None:  # with the learning rate that is chosen by then
        next(run for run in experiment.runs if run.name == name).carry_out(place)

    for run in runs:
        trials = trials_left([run])
        for trial in trials:
            tasks.setdefault(trial.name, WorkItem(trial.name, trial.carry_out, trial.updates))
        do = partial(tuned, run.name) if trials else run.carry_out
        tasks[run.name] = WorkItem(run.name, do, run.updates, tuple(trial.name for trial in trials))
    return list(tasks.values())


def describe(experiment: Experiment) -> str:
    """Every command of an experiment in its order, and the tokens that they read."""
    lines, runs = experiment.notes(), experiment.runs
    trials = trials_left(runs)
    found = {run.name: run for run in (*trials, *runs)}
    tasks = tasks_of(experiment, runs)
    for number, task in enumerate(tasks, 1):
        best = " (--lr: the best of its trials)" if task.after else ""
        lines.append(f"# [{number}/{len(tasks)}] {task.name}{best}")
        lines += [*(command.line for command in found[task.name].commands()), ""]
    total, tried = (sum(run.tokens for run in some) for some in (runs, trials))
    also = f", {len(trials)} trials of {tried:,} before them" if trials else ""
    return "\n".join([*lines, f"{len(runs)} runs of {total:,} tokens together{also}"])


def make_slots(
    experiment: Experiment, runs: Sequence[Run], parallel: int | None = None
) -> list[Slot]:
    """Places of runs that go on at the same time, with GPUs or a share of the cores each.

    Args:
        runs: all of the experiment, done or not: with a share of the cores that depends on what is left,
            a resumed run would not have the bits of an undisturbed one.
        parallel: their number (default: as many as the machine has room for).
    """
    import torch

    gpus = experiment.gpus
    there = torch.cuda.device_count() if gpus else 0
    room = there // gpus if there else cores()
    parallel = parallel or max(1, min(len(runs) + len(all_trials(runs)), room))
    if not there:
        share = str(experiment.threads or max(1, cores() // parallel))
        return [Slot({"OMP_NUM_THREADS": share})] * parallel
    names = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(there)))
    ring = cycle(names.split(","))
    shares = (",".join(islice(ring, gpus)) for _ in range(parallel))
    return [Slot({"CUDA_VISIBLE_DEVICES": share}) for share in shares]


def run_all(tasks: Sequence[WorkItem], places: Sequence[Slot]) -> None:
    """Carry out tasks; of several places, each that is free takes the first task that can begin.

    Args:
        tasks: in an order in which they can be done one after the other.

    Raises:
        UserInputError, Failed: of the first that fails; the others are asked to stop.
        Stopped: the process was asked to stop, and everything under way has saved.
    """
    began, done = time.monotonic(), list[WorkItem]()
    waiting, free = list(tasks), list(places)

    def begin(task: WorkItem) -> None:
        waiting.remove(task)
        finished, left = sum(each.updates for each in done), ""
        if finished:  # if it goes on at the same rate
            rest = sum(each.updates for each in tasks) - finished
            seconds = (time.monotonic() - began) / finished * rest
            left = f" (about {tqdm.format_interval(seconds)} left)"
        number = len(tasks) - len(waiting)
        tqdm.write(f"\n[{number}/{len(tasks)}] {task.name}{left}", file=sys.stdout)

    if len(places) == 1:
        for task in tasks:
            begin(task)
            task.do(places[0])
            done.append(task)
        return
    running: dict[Future, tuple[WorkItem, Slot]] = {}
    errors: list[BaseException] = []
    with stop_requests() as stop, ThreadPoolExecutor(len(places)) as pool:
        while running or (waiting and not stop.times):
            names = {task.name for task in done}
            ready = [task for task in waiting if names.issuperset(task.after)]
            for task in ready[: 0 if stop.times else len(free)]:
                begin(task)
                place = free.pop(0)
                running[pool.submit(task.do, replace(place, stop=stop))] = task, place
            for future in wait(running, INTERVAL, FIRST_COMPLETED).done:
                task, place = running.pop(future)
                free.append(place)
                if error := future.exception():
                    errors.append(error)
                    stop.times = stop.times or 1
                else:
                    done.append(task)
    if errors or waiting:
        raise min([*errors, Stopped()], key=lambda error: isinstance(error, Stopped))


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
    except CommandFailedError as failure:
        print(f"alibi-fairseq: error: {failure}", file=sys.stderr)
        return failure.code
    return 0
