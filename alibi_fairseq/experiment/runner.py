"""Execution of experiments: prepare the data, train and evaluate the runs, and write the report.

Completed runs are skipped. Several runs execute concurrently, each in a slot with its own GPUs or
cores. A signal saves and stops all of them, and the same command resumes.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from ..errors import ERROR, PROGRAM, STOPPED_EARLY, UserInputError
from ..files import locked
from ..results.file_names import TRAINING_FILE
from .child_process import CommandFailedError
from .plan import Plan
from .run import Run
from .scheduler import WorkItem, run_all
from .slots import Resources, Slot, describe_slots, make_slots
from .stopping import Stopped, stop_at_once


class Experiment(ABC):
    """Base of the experiments: data, runs that use it, and a report on them.

    Attributes:
        folder: working folder.
        folder_option: command-line option that names the folder.
        threads: number of threads of each run on a CPU (default: an equal division of the cores).
    """

    folder: Path
    folder_option: str = "--out"
    threads: int | None = None

    @property
    def resources(self) -> Resources:
        """What each run uses."""
        return Resources()

    @property
    @abstractmethod
    def prepared(self) -> bool:
        """True if the data exists."""

    @abstractmethod
    def prepare(self) -> None:
        """Check the input as far as possible, then prepare the data."""

    @abstractmethod
    def plan(self) -> Plan:
        """Return the runs, as far as the data and the results of trials determine them now."""

    @abstractmethod
    def report(self) -> None:
        """Write and print the report on the complete runs, of which there is one at least."""

    def dry_run_header(self) -> list[str]:
        """Return the lines that a dry run prints before the runs."""
        return []

    def dry_run_footer(self) -> list[str]:
        """Return the lines that a dry run prints after the runs."""
        return []


def execute_experiment(experiment: Experiment, parallel: int | None = None) -> int:
    """Execute an experiment and return an exit code as :func:`run_with_exit_code`.

    Completed work is skipped.

    Args:
        parallel: number of concurrent runs (default: as :func:`make_slots`).
    """
    return run_with_exit_code(partial(_execute_all, experiment, parallel))


def _execute_all(experiment: Experiment, parallel: int | None) -> None:
    """Prepare the data, execute the unfinished runs, and write the report.

    Raises:
        Stopped, CommandFailedError: as :func:`run_all`.
        UserInputError: the data cannot be prepared, or no run is complete at the end.
    """
    with locked(experiment.folder / "lock", experiment.folder_option, "command"):
        experiment.prepare()
        plan = experiment.plan()
        runs = plan.runs
        if not plan.unfinished:
            experiment.report()
            print(f"All {len(runs)} runs already complete. Nothing was trained or evaluated.")
            return
        if plan.complete:
            print(f"{len(plan.complete)} of {len(runs)} runs already complete.")
        items = make_work_items(experiment, plan, plan.unfinished)
        run_count = len(runs) + len(plan.trial_runs)
        slots = make_slots(run_count, experiment.resources.gpus, experiment.threads, parallel)
        print(describe_slots(slots))
        # With several GPUs, its training and its evaluation are separate.
        items_per_run = 2 if experiment.resources.several_gpus else 1
        completed = items_per_run * run_count - len(items)
        try:
            run_all(items, slots, completed)
        except Stopped:
            print(describe_progress(experiment.plan()), file=sys.stderr)
            raise
        except CommandFailedError:
            report_on_complete_runs(experiment)
            raise
        incomplete = report_on_complete_runs(experiment)
        if len(incomplete) == len(runs):
            raise UserInputError(
                "All runs were executed, but none is complete, because what determines them was "
                "changed meanwhile, such as a file that an option names. Rerun the command."
            )


def report_on_complete_runs(experiment: Experiment) -> list[Run]:
    """Write the report, if a run is complete, and return the runs that are not."""
    plan = experiment.plan()
    if plan.complete:
        experiment.report()
    return plan.unfinished


def unfinished_runs(experiment: Experiment, plan: Plan) -> list[Run]:
    """Return the runs that are not complete. Without prepared data, this is all runs."""
    return plan.unfinished if experiment.prepared else list(plan.runs)


def describe_progress(plan: Plan) -> str:
    """Return the number of complete runs, and the updates of those that a stop interrupted."""
    lines = [f"{len(plan.complete)} of {len(plan.runs)} runs are complete."]
    for run in (*plan.trial_runs, *plan.runs):
        updates = run.saved_updates()
        if 0 < updates < run.updates:
            lines.append(f"{run.name} saved update {updates:,} of {run.updates:,}.")
    return "\n".join(lines)


def make_work_items(experiment: Experiment, plan: Plan, runs: Iterable[Run]) -> list[WorkItem]:
    """Return the work items of runs and their unfinished trials, in order."""
    if experiment.resources.several_gpus:
        return _make_separate_work_items(runs)
    items = []
    for run in plan.with_unfinished_trials(runs):
        execute = run.execute
        if run.after:
            execute = partial(_execute_after_trials, experiment, run.name)
        items.append(WorkItem(run.name, execute, run.updates, run.after))
    return items


def _make_separate_work_items(runs: Iterable[Run]) -> list[WorkItem]:
    """Return a work item for each training, and one for the evaluations of each model.

    Evaluations of minutes come right after the training. Those that can take hours come last, when
    no training waits for all GPUs.
    """
    items = []
    last = []
    for run in runs:
        after: tuple[str, ...] = ()
        if not run.is_trained:
            items.append(WorkItem(run.name, run.train, run.updates))
            after = (run.name,)
        title = f"evaluation of {run.name}"
        evaluation = WorkItem(title, run.evaluate, 0, after, one_gpu=True)
        if run.has_sliding_windows:
            last.append(evaluation)
        else:
            items.append(evaluation)
    return items + last


def _execute_after_trials(experiment: Experiment, name: str, slot: Slot) -> None:
    """Execute a run at the learning rate that its trials have chosen by now."""
    experiment.plan().find(name).execute(slot)


def run_with_exit_code(work: Callable[[], object]) -> int:
    """Call ``work`` in the main thread and return an exit code.

    SIGTERM, SIGHUP, SIGUSR1, and Ctrl-C stop it. A command in progress saves first; anything else
    ends immediately.

    Returns:
        0, 75 if the work was stopped, or the exit code of the command that failed.
    """
    try:
        with stop_at_once():
            work()
    except Stopped:
        print("Stopped. Rerun the same command to resume.", file=sys.stderr)
        return STOPPED_EARLY
    except CommandFailedError as failure:
        print(f"{PROGRAM}{ERROR}{failure}", file=sys.stderr)
        return failure.code
    return 0


def format_dry_run(experiment: Experiment) -> str:
    """Return the commands that an experiment still executes, and its number of training tokens."""
    plan = experiment.plan()
    runs = unfinished_runs(experiment, plan)
    ordered = plan.with_unfinished_trials(runs)
    lines = list(experiment.dry_run_header())
    for number, run in enumerate(ordered, 1):
        title = f"# [{number}/{len(ordered)}] {run.name}"
        if run.after:
            title += " (--lr: the best of its trials)"
        lines.append(title)
        for command in run.unfinished_commands():
            lines.append(command.command_line)
        lines.append("")
    lines += experiment.dry_run_footer()
    if len(runs) < len(plan.runs):
        lines.append(f"{len(plan.complete)} of {len(plan.runs)} runs already complete:")
        lines += [f"  {run.name}" for run in plan.complete]
    tokens = sum(run.tokens for run in runs if not run.is_trained)
    plural = "" if len(runs) == 1 else "s"
    total = f"{len(runs)} run{plural} of {tokens:,} tokens in total"
    trials = plan.unfinished_trials()
    if trials:
        trial_tokens = sum(trial.tokens for trial in trials)
        total += f", after {len(trials)} trials of {trial_tokens:,} tokens"
    lines.append(total)
    trained = [run for run in runs if run.after and (run.folder / TRAINING_FILE).is_file()]
    if trained:
        lines.append(
            f"trained already, and only repeated if a new rate is better: {len(trained)} of them"
        )
    return "\n".join(lines)
