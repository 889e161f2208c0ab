"""Text of ``--dry-run``: the commands of an experiment."""

from __future__ import annotations

from collections.abc import Iterable

from .run import Run
from .runner import Experiment, all_trials, make_work_items


def format_dry_run(experiment: Experiment) -> str:
    """Return all commands of an experiment in order, and the number of training tokens."""
    runs = experiment.runs
    trials = [trial for trial in all_trials(runs) if not trial.is_done]
    runs_by_name = {run.name: run for run in (*trials, *runs)}
    items = make_work_items(experiment, runs)
    lines = list(experiment.dry_run_header())
    for number, item in enumerate(items, 1):
        title = f"# [{number}/{len(items)}] {item.name}"
        if item.after:
            title += " (--lr: the best of its trials)"
        lines.append(title)
        run = runs_by_name[item.name]
        for command in run.commands():
            lines.append(command.command_line)
        lines.append("")
    lines += experiment.dry_run_footer()
    total = f"{len(runs)} runs of {_total_tokens(runs):,} tokens in total"
    if trials:
        total += f", after {len(trials)} trials of {_total_tokens(trials):,} tokens"
    lines.append(total)
    return "\n".join(lines)


def _total_tokens(runs: Iterable[Run]) -> int:
    """Return the number of training tokens of all runs."""
    return sum(run.tokens for run in runs)
