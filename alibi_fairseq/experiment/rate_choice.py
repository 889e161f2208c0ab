"""Choice of a learning rate, with what each trial showed (:mod:`.trials`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..completion_marker import CompletionMarker


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
        label: name of the model in tables.
        lr: chosen rate.
        updates: number of updates of each trial.
        results: result of the trial at each rate.
        marker: file of the choice, whose path identifies the model. Its label need not be unique.
    """

    label: str
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
