"""Choice of a learning rate by short trials, compared by validation loss.

Each model of a group with several rates is trained at each of them for the same fraction of its
updates, with the schedule of that shorter training and the first seed. The trials are compared on
the split ``valid``, whichever split is evaluated later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..completion_marker import CompletionMarker, read_json_if_present
from ..errors import UserInputError
from ..reporting import markdown
from ..reporting.table import Column, Table
from ..results.file import load_training
from ..results.result import TextValues
from .run import Run


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
        marker: file of the choice, whose path identifies the model. Its label need not be unique.
    """

    model: str
    lr: float
    updates: int
    results: Mapping[float, TrialResult]
    marker: CompletionMarker = field(compare=False, repr=False)

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
        if not self.marker.holds() or self.marker.result != chosen:
            self.marker.write(chosen)


@dataclass(frozen=True)
class Trials:
    """Learning-rate trials of a model.

    Attributes:
        model: label of the model in tables.
        runs: trial at each rate.
        path: file of the choice, which outlasts the folders of the trials.
        valid_sha256: hash of the validation splits; None before they exist.
    """

    model: str
    runs: Mapping[float, Run]
    path: Path
    valid_sha256: str | None = None

    @property
    def first_rate(self) -> float:
        """The first candidate."""
        return next(iter(self.runs))

    @property
    def marker(self) -> CompletionMarker:
        """File of the choice, which holds if it was made by trials with the same requests."""
        return CompletionMarker(self.path, {"trials": [run.request for run in self.runs.values()]})

    def choose(self, known: Mapping[str, TrialResult]) -> Choice | None:
        """Return the choice of the rate with the lowest loss; None if all trials diverged.

        Args:
            known: results of all trials, by the name of the run.
        """
        results = {lr: known[run.name] for lr, run in self.runs.items()}
        best = None
        lowest = math.inf
        for lr, result in results.items():
            if result.loss_bits is not None and result.loss_bits < lowest:
                best = lr
                lowest = result.loss_bits
        if best is None:
            return None
        updates = self.runs[best].updates
        return Choice(self.model, best, updates, results, self.marker)

    def why_blocked(self, known: Mapping[str, TrialResult]) -> str:
        """Return the reason for which finished trials cannot choose a rate; empty if they can."""
        results = [known[run.name] for run in self.runs.values()]
        if all(result.loss_bits is None for result in results):
            rates = ", ".join(map(str, self.runs))
            return f"--lr: {self.model} diverged at {rates}. Try smaller values."
        if all(result.is_validated_on(self.valid_sha256) for result in results):
            return ""
        folders = os.path.commonprefix([str(run.folder) for run in self.runs.values()])
        return (
            f"The learning rate of {self.model} was chosen on another validation split. Move "
            f"{folders}* away to choose it again."
        )

    def read_results(self) -> dict[str, TrialResult]:
        """Return the results of finished trials, by the name of the run."""
        recorded = self._recorded_results()
        results = {}
        for run in self.runs.values():
            result = recorded.get(run.name)
            if result is not None and result.is_validated_on(self.valid_sha256):
                results[run.name] = result
            elif run.is_complete:
                results[run.name] = _load_trial(run)
        return results

    def _recorded_results(self) -> dict[str, TrialResult]:
        """Return the results in the file of the choice; none if the trials have changed."""
        if not self.marker.holds():
            return {}
        results = {}
        for run, trial in zip(self.runs.values(), self.marker.result["trials"], strict=True):
            results[run.name] = TrialResult(trial["loss_bits"], trial.get("provenance"))
        return results


def _load_trial(trial: Run) -> TrialResult:
    """Return the result of a finished trial from its folder.

    The provenance has the command of the training without this machine's interpreter.
    """
    if trial.diverged:
        return TrialResult(None, None)
    training = load_training(trial.folder)
    losses = []
    for validation in training.results:
        if validation.case.split != "valid":  # --valid-subset can name several splits
            continue
        if isinstance(validation.values, TextValues):
            losses.append(validation.values.loss_bits)
    assert training.provenance is not None, "the training recorded it"
    provenance = training.provenance.model_dump(exclude_unset=True)
    command = trial.training_command().command_line
    return TrialResult(min(losses, default=None), {**provenance, "command": command})


@dataclass(frozen=True)
class Tuning:
    """Choice of a run's learning rate by trials. Before they have chosen, it has the first rate.

    Attributes:
        choice: choice of the rate; None before, and if the trials cannot choose one.
        blocked: reason for which finished trials cannot choose a rate; empty if they can.
    """

    choice: Choice | None = None
    blocked: str = ""

    def prepare(self, run: Run) -> None:
        """Record the choice, and set a training of a run at another rate aside.

        Raises:
            UserInputError: a trial is unfinished, or the trials cannot choose a rate.
        """
        if self.blocked:
            raise UserInputError(self.blocked)
        if self.choice is not None:
            self.choice.record()
            self._set_other_rate_aside(run)
        elif not run.is_trained:
            raise UserInputError(f"{run.name}: trial {run.after[0]} is unfinished. Run it first.")

    def replaced_rate(self, run: Run) -> str | None:
        """Return the rate of the training in a run's folder, if trials now choose another one."""
        existing = read_json_if_present(run.request_file)
        if self.choice is None or existing is None:
            return None
        others, rate = _without_rate(existing)
        own_others, own_rate = _without_rate(run.request)
        return rate if others == own_others and rate != own_rate else None

    def _set_other_rate_aside(self, run: Run) -> None:
        """Rename the folder if it has the training at a rate that is no longer the best one.

        A rate that was added to ``--lr`` may be better. If its training was set aside earlier, it
        gets the name of the run again.
        """
        replaced_rate = self.replaced_rate(run)
        if replaced_rate is None:
            return
        _, rate = _without_rate(run.request)
        aside = _folder_aside(run, replaced_rate)
        os.replace(run.folder, aside)
        print(f"{run.name}: --lr {rate} is better than {replaced_rate}, now in {aside}.")
        if _folder_aside(run, rate).is_dir():
            os.replace(_folder_aside(run, rate), run.folder)


def _folder_aside(run: Run, rate: str) -> Path:
    """Return the folder of the training at a rate that is not the best one."""
    return run.folder.with_name(f"{run.folder.name}-replaced-lr{rate}")


def _without_rate(request: dict) -> tuple[dict, str]:
    """Return the request of a run without its learning rate, and the rate."""
    options = list(request["options"])
    rate = options.pop(options.index("--lr") + 1)
    return {**request, "options": options}, rate


def choice_table(choices: Iterable[Choice]) -> str:
    """Return validation perplexity by learning rate as Markdown."""
    by_path = {choice.marker.path: choice for choice in choices}  # all seeds of a model have one
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
