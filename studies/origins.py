"""Tables of how the models of a study were trained: their origin, and their learning rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from alibi_fairseq.experiment.rates import trial_cell
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Column, Table
from alibi_fairseq.reporting.training_costs import processor_name

from .study_results import TrainingOrigin


def divergence_sentence(names: Sequence[str]) -> str:
    """Return a sentence about the models whose training diverged; empty without any."""
    if not names:
        return ""
    models = ", ".join(f"`{name}`" for name in names)
    return f"The training of these models diverged. They are not replaced: {models}."


class _Origin(NamedTuple):
    """Models that were trained on one kind of processor at one commit."""

    processor: str
    commit: str
    names: list[str]
    hours: float


def origins_table(origins: Mapping[str, TrainingOrigin]) -> str:
    """Write which models were trained on each processor at each commit, and their hours.

    It is empty without any.
    """
    names_by_origin: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, origin in origins.items():
        commit = origin.provenance.git_commit or "unknown"
        processor = processor_name(origin.provenance.hardware)
        names_by_origin[processor, commit[:7]].append(name)
    rows = []
    for (processor, commit), names in sorted(names_by_origin.items()):
        hours = sum(origins[name].hours for name in names)
        rows.append(_Origin(processor, commit, names, hours))
    if not rows:
        return ""
    columns = [
        Column[_Origin]("processor", lambda row: row.processor),
        Column[_Origin]("commit", lambda row: row.commit),
        Column[_Origin]("models (seeds)", lambda row: seeds_by_model(row.names)),
        Column[_Origin]("number", lambda row: str(len(row.names))),
        Column[_Origin]("hours of training (sum)", lambda row: f"{row.hours:.1f}"),
    ]
    return markdown.to_markdown([Table(columns, rows, left=3)])


def seeds_by_model(names: Iterable[str]) -> str:
    """Return ``wikipedia-alibi-128 (1, 2)`` for names such as ``wikipedia-alibi-128-seed1``."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for name in names:
        model, seed = name.rsplit("-seed", 1)
        seeds[model].append(seed)
    return ", ".join(f"{model} ({', '.join(of_model)})" for model, of_model in seeds.items())


class _Trials(NamedTuple):
    """Learning-rate trials of a model, and their outcome."""

    model: str
    outcome: Mapping

    @property
    def losses(self) -> dict[float, float | None]:
        """Loss of each learning rate; None if the training diverged."""
        return {trial["lr"]: trial["loss_bits"] for trial in self.outcome["trials"]}


def trials_table(tuning: Mapping[str, Mapping]) -> str:
    """Write the perplexity of each trial, and the learning rate with the lowest loss.

    It is empty without any.
    """
    rows = [_Trials(model, outcome) for model, outcome in tuning.items()]
    if not rows:
        return ""
    columns = [Column[_Trials]("perplexity after the trial", lambda row: row.model)]
    for rate in sorted({rate for row in rows for rate in row.losses}):
        columns.append(Column(f"{rate:g}", partial(_perplexity_at, rate)))
    columns.append(Column("best", _best_rate))
    return markdown.to_markdown([Table(columns, rows)])


def _perplexity_at(rate: float, row: _Trials) -> str:
    """Return the perplexity of the trial at a rate."""
    return trial_cell(row.losses, rate)


def _best_rate(row: _Trials) -> str:
    edge = " (edge of the grid)" if row.outcome["at_edge"] else ""
    return f"{row.outcome['lr']:g}{edge}"
