"""What learning-rate trials decide for a run: the chosen rate, and a training at another one.

:mod:`.rates` has the trials themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..completion_marker import CompletionMarker
from ..errors import UserInputError


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
class Tuning:
    """Choice of a run's learning rate by trials. Until they choose, the run has the first rate.

    Attributes:
        choice: choice of the rate; None before, and if the trials cannot choose one.
        blocked: reason for which finished trials cannot choose a rate; empty if they can.
    """

    choice: Choice | None = None
    blocked: str = ""

    def settle(self, folder: Path, existing: dict | None, request: dict) -> None:
        """Record the choice, and set a training of the run at another rate aside.

        A rate that was added to ``--lr`` may be better than the rate of that training, whose folder
        is renamed. If the training at the new rate was set aside earlier, it gets its name again.

        Args:
            folder: folder of the run.
            existing: request of the training in the folder; None without one.
            request: request of the run.

        Raises:
            UserInputError: the trials cannot choose a rate.
        """
        if self.blocked:
            raise UserInputError(self.blocked)
        if self.choice is None:
            return
        self.choice.record()
        replaced_rate = self.replaced_rate(existing, request)
        if replaced_rate is None:
            return
        _, rate = _without_rate(request)
        aside = _folder_aside(folder, replaced_rate)
        os.replace(folder, aside)
        print(f"{folder.name}: --lr {rate} is better than {replaced_rate}, now in {aside}.")
        if _folder_aside(folder, rate).is_dir():
            os.replace(_folder_aside(folder, rate), folder)

    def replaced_rate(self, existing: dict | None, request: dict) -> str | None:
        """Return the rate of the existing training, if trials now choose another one."""
        if self.choice is None or existing is None:
            return None
        others, rate = _without_rate(existing)
        own_others, own_rate = _without_rate(request)
        return rate if others == own_others and rate != own_rate else None


def _folder_aside(folder: Path, rate: str) -> Path:
    """Return the folder of the training at a rate that is not the best one."""
    return folder.with_name(f"{folder.name}-replaced-lr{rate}")


def _without_rate(request: dict) -> tuple[dict, str]:
    """Return the request of a run without its learning rate, and the rate."""
    options = list(request["options"])
    rate = options.pop(options.index("--lr") + 1)
    return {**request, "options": options}, rate
