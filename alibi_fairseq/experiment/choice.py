"""Learning rate that trials chose for a model, and the table of such choices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..completion_marker import CompletionMarker
from ..reporting import markdown
from ..reporting.table import Column, Table


@dataclass(frozen=True)
class TrialResult:
    """What a learning-rate trial showed.

    Attributes:
        loss_bits: lowest validation loss in bits per token; None if the trial diverged.
        provenance: provenance of the training; None if it diverged, and in early results.
    """

    loss_bits: float | None
    provenance: dict | None

    def is_validated_on(self, valid_sha256: str | None) -> bool:
        """Return False if the validation splits are known to have had another hash."""
        if self.provenance is None or valid_sha256 is None:
            return True
        return self.provenance["data_sha256"] in (None, valid_sha256)


@dataclass(frozen=True)
class Choice:
    """Learning rate that trials chose for a model.

    Attributes:
        model: label of the model in tables.
        lr: chosen rate.
        updates: number of updates of each trial.
        results: result of the trial at each rate.
        path: file of the choice, which outlasts the folders of the trials. It identifies the model,
            whose label need not be unique.
        trial_settings: settings of each trial.
    """

    model: str
    lr: float
    updates: int
    results: Mapping[float, TrialResult]
    path: Path
    trial_settings: tuple[dict, ...]

    @property
    def is_at_edge(self) -> bool:
        """True if a rate outside the grid may be better."""
        return self.lr in (min(self.results), max(self.results))

    def as_json(self) -> dict:
        """Return the choice with the results of its trials as JSON values."""
        trials = []
        for lr, result in self.results.items():
            trials.append(
                {"lr": lr, "loss_bits": result.loss_bits, "provenance": result.provenance}
            )
        return {
            "lr": self.lr,
            "at_edge": self.is_at_edge,
            "updates": self.updates,
            "trials": trials,
        }

    def record(self) -> None:
        """Write the choice, unless it is written already."""
        chosen = self.as_json()
        marker = choice_marker(self.path, self.trial_settings)
        if not marker.holds() or marker.result != chosen:
            marker.write(chosen)


def choice_marker(path: Path, trial_settings: Sequence[dict]) -> CompletionMarker:
    """Return the marker of a choice that trials with some settings make."""
    return CompletionMarker(path, {"trials": list(trial_settings)})


def choice_table(choices: Iterable[Choice]) -> str:
    """Return validation perplexity by learning rate as Markdown."""
    by_path = {choice.path: choice for choice in choices}  # all seeds of a model have one
    rates: set[float] = set()
    update_counts: dict[str, None] = {}
    at_edge = []
    for choice in by_path.values():
        rates.update(choice.results)
        update_counts[f"{choice.updates:,}"] = None
        if choice.is_at_edge:
            at_edge.append(choice.model)
    updates = " or ".join(update_counts)
    columns = [Column[Choice]("", lambda choice: choice.model)]
    for rate in sorted(rates):
        columns.append(Column(f"{rate:g}", partial(_perplexity_at, rate)))
    columns.append(Column("chosen", lambda choice: f"{choice.lr:g}"))
    paragraphs = [
        f"Learning rates, chosen by validation perplexity after {updates} updates:",
        markdown.to_markdown([Table(columns, list(by_path.values()))]).rstrip(),
    ]
    if at_edge:
        models = ", ".join(at_edge)
        paragraphs.append(f"Best at the edge of the grid, so others may be better: {models}.")
    return "\n\n".join(paragraphs)


def _perplexity_at(rate: float, choice: Choice) -> str:
    """Return the perplexity of the trial at a rate."""
    losses = {lr: result.loss_bits for lr, result in choice.results.items()}
    return trial_cell(losses, rate)


def trial_cell(losses: Mapping[float, float | None], rate: float) -> str:
    """Return the perplexity of the trial at a rate; a dash if it was not tried.

    Args:
        losses: lowest loss by rate, in bits per token; None if the trial diverged.
    """
    if rate not in losses:
        return markdown.NOTHING
    loss = losses[rate]
    return "diverged" if loss is None else markdown.perplexity(2**loss)
