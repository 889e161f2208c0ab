"""Execution of experiments: prepare the data, train and evaluate the runs, and write the report.

Completed runs are skipped. Several runs execute concurrently, each in a slot with its own GPUs or
cores. A signal saves and stops all of them, and the same command resumes.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from ..errors import STOPPED_EARLY, leave_terminal
from ..files import locked
from .child_process import CommandFailedError
from .execution import Slot, Stopped, handle_stop_signals
from .run import Run
from .scheduler import WorkItem, run_all
from .slots import describe_slots, make_slots


class Experiment(Protocol):
    """Data, runs that use it, and a report on them.

    Attributes:
        folder: working folder.
        folder_option: command-line option that names the folder.
        threads: number of threads of each run on a CPU (default: an equal division of the cores).
        report_if_incomplete: True if the report is also written when a run fails or is stopped.
    """

    folder: Path
    folder_option: str = "--out"
    threads: int | None = None
    report_if_incomplete: bool = False

    @property
    def gpus(self) -> int:
        """Number of GPUs of each run on a machine with GPUs. 0: runs use the CPU."""
        return 1

    @property
    def prepared(self) -> bool:
        """True if the data exists."""

    def prepare(self) -> None:
        """Check the input as far as possible, then prepare the data."""

    @property
    def runs(self) -> Sequence[Run]:
        """Runs in order of importance; final once the data is prepared."""

    def report(self) -> None:
        """Write and print the report."""

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
        UserInputError: the data cannot be prepared.
    """
    with locked(experiment.folder / "lock", experiment.folder_option, "command"):
        experiment.prepare()
        runs = experiment.runs
        unfinished = [run for run in runs if not run.is_complete]
        if not unfinished:
            experiment.report()
            print(f"All {len(runs)} runs already complete. Nothing was trained or evaluated.")
            return
        if len(unfinished) < len(runs):
            completed_runs = len(runs) - len(unfinished)
            print(f"{completed_runs} of {len(runs)} runs already complete.")
        items = make_work_items(experiment, unfinished)
        run_count = len(runs) + len(all_trials(runs))
        slots = make_slots(run_count, experiment.gpus, experiment.threads, parallel)
        print(describe_slots(slots))
        completed = run_count - len(items)
        try:
            run_all(items, slots, completed)
        except (Stopped, CommandFailedError) as error:
            if experiment.report_if_incomplete:
                experiment.report()
            if isinstance(error, Stopped):
                print(progress_of(experiment.runs), file=sys.stderr)
            raise
        experiment.report()


def all_trials(runs: Iterable[Run]) -> list[Run]:
    """Return the trials of these runs, each once."""
    trials: dict[str, Run] = {}
    for run in runs:
        for trial in run.trials:
            trials[trial.name] = trial
    return list(trials.values())


def progress_of(runs: Sequence[Run]) -> str:
    """Return the number of complete runs, and the updates of those that a stop interrupted."""
    complete = sum(run.is_complete for run in runs)
    lines = [f"{complete} of {len(runs)} runs are complete."]
    for run in (*all_trials(runs), *runs):
        updates = run.saved_updates()
        if 0 < updates < run.updates:
            lines.append(f"{run.name} saved update {updates:,} of {run.updates:,}.")
    return "\n".join(lines)


def with_unfinished_trials(runs: Iterable[Run]) -> list[Run]:
    """Return the runs in order, each after its unfinished trials."""
    ordered: dict[str, Run] = {}
    for run in runs:
        for trial in run.unfinished_trials:
            ordered.setdefault(trial.name, trial)
        ordered[run.name] = run
    return list(ordered.values())


def make_work_items(experiment: Experiment, runs: Iterable[Run]) -> list[WorkItem]:
    """Return the work items of runs and their unfinished trials, in order."""
    items = []
    for run in with_unfinished_trials(runs):
        trial_names = tuple(trial.name for trial in run.unfinished_trials)
        execute = run.execute
        if trial_names:
            # Its learning rate is known only after the trials.
            execute = partial(_execute_by_name, experiment, run.name)
        items.append(WorkItem(run.name, execute, run.updates, after=trial_names))
    return items


def _execute_by_name(experiment: Experiment, name: str, slot: Slot) -> None:
    """Execute the run that the experiment lists under a name when this is called."""
    for run in experiment.runs:
        if run.name == name:
            run.execute(slot)
            return
    raise LookupError(name)


def run_with_exit_code(work: Callable[[], object]) -> int:
    """Call ``work`` in the main thread and return an exit code.

    SIGTERM, SIGHUP, SIGUSR1, and Ctrl-C stop it. A command in progress saves first; anything else
    ends immediately.

    Returns:
        0, 75 if the work was stopped, or the exit code of the command that failed.
    """

    def stop(number, frame):
        if number == signal.SIGHUP:
            leave_terminal()
        raise Stopped

    try:
        with handle_stop_signals(stop):
            work()
    except Stopped:
        print("Stopped. Rerun the same command to resume.", file=sys.stderr)
        return STOPPED_EARLY
    except CommandFailedError as failure:
        print(f"alibi-fairseq: error: {failure}", file=sys.stderr)
        return failure.code
    return 0


def format_dry_run(experiment: Experiment) -> str:
    """Return all commands of an experiment in order, and the number of training tokens."""
    runs = experiment.runs
    ordered = with_unfinished_trials(runs)
    lines = list(experiment.dry_run_header())
    for number, run in enumerate(ordered, 1):
        title = f"# [{number}/{len(ordered)}] {run.name}"
        if run.unfinished_trials:
            title += " (--lr: the best of its trials)"
        lines.append(title)
        for command in run.commands():
            lines.append(command.command_line)
        lines.append("")
    lines += experiment.dry_run_footer()
    tokens = sum(run.tokens for run in runs)
    total = f"{len(runs)} runs of {tokens:,} tokens in total"
    trials = [trial for trial in all_trials(runs) if not trial.is_complete]
    if trials:
        trial_tokens = sum(trial.tokens for trial in trials)
        total += f", after {len(trials)} trials of {trial_tokens:,} tokens"
    lines.append(total)
    return "\n".join(lines)
