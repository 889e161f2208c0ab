"""Text of ``--dry-run``: the commands of an experiment."""

from __future__ import annotations

from .runner import Experiment, all_trials, with_unfinished_trials


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
