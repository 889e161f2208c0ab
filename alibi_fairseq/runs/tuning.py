"""Tuning of learning rates: short trials, compared by validation loss.

Each model of a comparison is trained at each candidate rate for the same fraction of its updates,
with the schedule of that shorter training and the first seed. The split that is evaluated later
plays no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserInputError
from ..reporting import markdown
from ..results.completion import CompletionMarker
from ..results.results_file import load_results_file
from ..results.schema import TRAINING_FILE
from .child_process import DEFAULT_SLOT, CommandFailedError, Slot
from .run import Run


@dataclass(frozen=True)
class Trial(Run):
    """Training at one learning rate. Divergence is a valid outcome, not a failure."""

    lr: float = 0.0

    @property
    def done(self) -> bool:
        """True if the trial is complete or has diverged."""
        return self._divergence_marker.holds() or super().done

    def train(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Train as any run, and record divergence.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`, except for divergence.
        """
        try:
            super().train(slot)
        except CommandFailedError as failure:
            if "FloatingPointError" not in str(failure):
                raise
            self._divergence_marker.write()

    @property
    def loss_bits(self) -> float | None:
        """Lowest validation loss, in bits per token; None if the trial diverged."""
        if self._divergence_marker.holds():
            return None
        records = load_results_file(self.folder / TRAINING_FILE)["cells"]
        return min(record["loss_bits"] for record in records)

    @property
    def _divergence_marker(self) -> CompletionMarker:
        return CompletionMarker(self.folder / "diverged.json", self.settings)


@dataclass(frozen=True)
class Tuning:
    """Learning rate of a model and the trials that choose it.

    Attributes:
        model: label of the model in tables.
        lr: chosen learning rate; the first candidate while trials are unfinished.
        trials: trials on which the choice depends.
        outcome: JSON values, or None while trials are unfinished: ``lr``; ``updates`` of each
            trial; ``at_edge``, true if a rate outside the grid may be better; ``trials``, each with
            ``lr`` and ``loss_bits``.
    """

    model: str
    lr: float
    trials: tuple[Trial, ...] = ()
    outcome: dict | None = None

    @classmethod
    def choose(cls, model: str, trials: tuple[Trial, ...], path: Path) -> Tuning:
        """Choose the learning rate with the lowest validation loss, once all trials are done.

        Args:
            path: file of the outcome, which outlasts the folders of the trials.

        Raises:
            UserInputError: every trial diverged.
        """
        marker = CompletionMarker(path, {"trials": [trial.settings for trial in trials]})
        trials_done = all(trial.done for trial in trials)
        if not marker.holds():
            if not trials_done:
                return cls(model, trials[0].lr, trials)
            marker.write(_outcome(model, trials))
        elif not trials_done:
            trials = ()  # their folders are gone, and the outcome is known
        outcome: Any = marker.result
        return cls(model, outcome["lr"], trials, outcome)


def _outcome(model: str, trials: tuple[Trial, ...]) -> dict:
    """Return the outcome of finished trials, as :class:`Tuning` describes it."""
    losses = {trial.lr: trial.loss_bits for trial in trials}
    finite_losses = {lr: loss for lr, loss in losses.items() if loss is not None}
    if not finite_losses:
        rates = ", ".join(map(str, losses))
        raise UserInputError(f"--lr: {model} diverged at {rates}. Try smaller values.")
    best = min(finite_losses, key=finite_losses.__getitem__)
    return {
        "lr": best,
        "at_edge": best in (min(losses), max(losses)),
        "updates": trials[0].updates,
        "trials": [{"lr": lr, "loss_bits": loss} for lr, loss in losses.items()],
    }


@dataclass(frozen=True)
class TunedRun(Run):
    """Run whose learning rate is chosen by trials.

    Attributes:
        tuning: the choice of its learning rate.
    """

    tuning: Tuning | None = field(default=None, repr=False)

    @property
    def trials(self) -> tuple[Run, ...]:
        """Trials that choose the learning rate."""
        if self.tuning is None:
            return ()
        return self.tuning.trials


def tuning_table(runs: Iterable[TunedRun]) -> str:
    """Return validation perplexity by learning rate as Markdown; empty if no rate was chosen."""
    outcomes: dict[str, dict] = {}
    for run in runs:
        if run.tuning and run.tuning.outcome:
            outcomes[run.tuning.model] = run.tuning.outcome
    if not outcomes:
        return ""
    grid = sorted({trial["lr"] for outcome in outcomes.values() for trial in outcome["trials"]})
    rows = [_tuning_row(model, outcome, grid) for model, outcome in outcomes.items()]
    update_counts = dict.fromkeys(f"{outcome['updates']:,}" for outcome in outcomes.values())
    updates = " or ".join(update_counts)
    headers = ["", *(f"{lr:g}" for lr in grid), "chosen"]
    paragraphs = [
        f"Learning rates, chosen by validation perplexity after {updates} updates:",
        markdown.table(headers, rows).rstrip(),
    ]
    at_edge = [model for model, outcome in outcomes.items() if outcome["at_edge"]]
    if at_edge:
        models = ", ".join(at_edge)
        paragraphs.append(f"Best at the edge of the grid, so others may be better: {models}.")
    return "\n\n".join(paragraphs)


def _tuning_row(model: str, outcome: Mapping, grid: list[float]) -> list[str]:
    """Return the row of a model: perplexity at each learning rate, and the chosen rate."""
    losses = {trial["lr"]: trial["loss_bits"] for trial in outcome["trials"]}
    row = [model]
    for lr in grid:
        loss = losses[lr]
        row.append("diverged" if loss is None else markdown.perplexity(2**loss))
    row.append(f"{outcome['lr']:g}")
    return row
