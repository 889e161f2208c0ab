"""Learning-rate trials: short trainings, compared by validation loss.

Each model of a group with several rates is trained at each of them for the same fraction of its
updates, with the schedule of that shorter training and the first seed. The trials are compared on
the split ``valid``, whichever split is evaluated later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..completion_marker import CompletionMarker
from ..results.file import load_training
from ..results.values import TextValues
from .rate_choice import Choice, TrialResult
from .run import Run


@dataclass(frozen=True)
class Trials:
    """Learning-rate trials of a model.

    Attributes:
        label: name of the model in tables.
        runs: trial at each rate.
        path: file of the choice, which outlasts the folders of the trials.
        valid_sha256: hash of the validation splits; None before they exist.
    """

    label: str
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
        return Choice(self.label, best, updates, results, self.marker)

    def why_blocked(self, known: Mapping[str, TrialResult]) -> str:
        """Return the reason for which finished trials cannot choose a rate; empty if they can."""
        results = [known[run.name] for run in self.runs.values()]
        if all(result.loss_bits is None for result in results):
            rates = ", ".join(map(str, self.runs))
            return f"--lr: {self.label} diverged at {rates}. Try smaller values."
        if all(result.is_validated_on(self.valid_sha256) for result in results):
            return ""
        folders = os.path.commonprefix([str(run.folder) for run in self.runs.values()])
        return (
            f"The learning rate of {self.label} was chosen on another validation split. Move "
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
