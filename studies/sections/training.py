"""Tables of how the models of a study were trained: their origin, and their learning rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from alibi_fairseq.experiment.report import trial_cell
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.training_costs import processor_name

from ..analysis.study_results import FinishedModel


def divergence_sentence(names: Sequence[str]) -> str:
    """Return a sentence about the models whose training diverged; empty without any."""
    if not names:
        return ""
    models = ", ".join(f"`{name}`" for name in names)
    return f"The training of these models diverged. They are not replaced: {models}."


def origins_table(models: Iterable[FinishedModel]) -> str:
    """Write which models were trained on each processor at each commit, and their hours.

    It is empty without any.
    """
    by_origin: dict[tuple[str, str], list[FinishedModel]] = defaultdict(list)
    for model in models:
        commit = model.provenance.git_commit or "unknown"
        by_origin[processor_name(model.provenance.hardware), commit[:7]].append(model)
    if not by_origin:
        return ""
    headers = ["processor", "commit", "models (seeds)", "runs", "total hours"]
    rows = []
    for (processor, commit), of_origin in sorted(by_origin.items()):
        hours = sum(model.hours for model in of_origin)
        row = [processor, commit, seeds_by_model(of_origin)]
        rows.append([*row, str(len(of_origin)), f"{hours:.1f}"])
    return markdown.table(headers, rows, left=3)


def seeds_by_model(models: Iterable[FinishedModel]) -> str:
    """Return the models with their seeds, such as ``wikipedia-alibi-128 (1, 2)``."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for model in models:
        name, seed = model.folder.name.rsplit("-seed", 1)
        seeds[name].append(seed)
    return ", ".join(f"{name} ({', '.join(of_model)})" for name, of_model in seeds.items())


def trials_table(tuning: Mapping[str, Mapping]) -> str:
    """Write the perplexity of each trial, and the learning rate with the lowest loss.

    It is empty without any.
    """
    losses = {}
    rates: set[float] = set()
    for model, outcome in tuning.items():
        losses[model] = {trial["lr"]: trial["loss_bits"] for trial in outcome["trials"]}
        rates.update(losses[model])
    if not losses:
        return ""
    headers = ["perplexity after the trial", *(f"{rate:g}" for rate in sorted(rates)), "best"]
    rows = []
    for model, outcome in tuning.items():
        cells = [trial_cell(losses[model], rate) for rate in sorted(rates)]
        edge = " (edge of the grid)" if outcome["at_edge"] else ""
        rows.append([model, *cells, f"{outcome['lr']:g}{edge}"])
    return markdown.table(headers, rows)
