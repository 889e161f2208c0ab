"""Text of ``--dry-run``: the commands of an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from .run import Run
from .runner import Experiment, all_trials, make_work_items


def format_dry_run(experiment: Experiment) -> str:
    """Return all commands of an experiment in order, and the number of training tokens."""
    runs = experiment.runs
    trials = [trial for trial in all_trials(runs) if not trial.is_done]
    lines = list(experiment.dry_run_header())
    lines += _command_lines(experiment, runs, trials)
    lines += experiment.dry_run_footer()
    tokens = sum(run.tokens for run in runs)
    total = f"{len(runs)} runs of {tokens:,} tokens in total"
    if trials:
        trial_tokens = sum(trial.tokens for trial in trials)
        total += f", after {len(trials)} trials of {trial_tokens:,} tokens"
    lines.append(total)
    return "\n".join(lines)


def _command_lines(experiment: Experiment, runs: Sequence[Run], trials: Sequence[Run]) -> list[str]:
    """Return the commands of the runs, each after the commands of its unfinished trials."""
    runs_by_name = {run.name: run for run in (*trials, *runs)}
    items = make_work_items(experiment, runs)
    lines = []
    for number, item in enumerate(items, 1):
        title = f"# [{number}/{len(items)}] {item.name}"
        if item.after:
            title += " (--lr: the best of its trials)"
        lines.append(title)
        run = runs_by_name[item.name]
        for command in run.commands():
            lines.append(command.command_line)
        lines.append("")
    return lines
