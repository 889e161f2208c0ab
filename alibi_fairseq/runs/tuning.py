"""Learning rates chosen by trials: short trainings, compared by their loss on validation.

Every model of a comparison is trained at each value for the same part of its updates, with the
schedule of that shorter training and the first seed. The split that is evaluated plays no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserInputError
from ..reporting import markdown
from ..results.schema import TRAINING_FILE, load_results_file
from ..results.completion import CompletionMarker
from .child_process import HERE, CommandFailedError, Slot
from .run import Run


@dataclass(frozen=True)
class Trial(Run):
    """A training at one learning rate; that it diverges is an outcome, not a failure."""

    lr: float = 0.0

    @property
    def done(self) -> bool:
        return self._diverged.holds() or super().done

    def train(self, place: Slot = HERE) -> None:
        try:
            super().train(place)
        except CommandFailedError as failure:
            if "FloatingPointError" not in str(failure):
                raise
            self._diverged.write()

    @property
    def loss_bits(self) -> float | None:
        """The lowest validation loss, in bits per token; None if it diverged."""
        if self._diverged.holds():
            return None
        return min(
            cell["loss_bits"] for cell in load_results_file(self.folder / TRAINING_FILE)["cells"]
        )

    @property
    def _diverged(self) -> CompletionMarker:
        return CompletionMarker(self.folder / "diverged.json", self.settings)


@dataclass(frozen=True)
class Tuning:
    """The learning rate of the runs of a model.

    Attributes:
        lr: that is chosen; before the trials are done, the first of those to try.
        trials: to be done before it is chosen.
        outcome: of the trials, as JSON: ``lr``, ``updates`` of each, ``at_edge`` (whether a value
            outside the grid may be better) and ``trials`` with ``lr`` and ``loss_bits`` each.
    """

    model: str
    lr: float
    trials: tuple[Trial, ...] = ()
    outcome: dict | None = None

    @classmethod
    def of(cls, model: str, trials: tuple[Trial, ...], path: Path) -> Tuning:
        """Choose, if the trials are done; the file keeps the outcome where the trials are not."""
        done = all(trial.done for trial in trials)
        stamp = CompletionMarker(path, {"trials": [trial.settings for trial in trials]})
        if stamp.holds():
            outcome: Any = stamp.result
            return cls(model, outcome["lr"], trials if done else (), outcome)
        if not done:
            return cls(model, trials[0].lr, trials)
        losses = {trial.lr: trial.loss_bits for trial in trials}
        finite = {lr: loss for lr, loss in losses.items() if loss is not None}
        if not finite:
            raise UserInputError(f"lr: {model} diverges at every value: {', '.join(map(str, losses))}.")
        best = min(finite, key=finite.__getitem__)
        outcome = {
            "lr": best,
            "at_edge": best in (min(losses), max(losses)),
            "updates": trials[0].updates,
            "trials": [{"lr": lr, "loss_bits": loss} for lr, loss in losses.items()],
        }
        stamp.write(outcome)
        return cls(model, best, trials, outcome)


def tuning_table(runs: Iterable[Run]) -> str:
    """Validation perplexity at each learning rate, in Markdown; empty where none was chosen."""
    tunings = [run.tuning for run in runs if run.tuning]
    found = {each.model: each.outcome for each in tunings if each.outcome}
    if not found:
        return ""
    grid = sorted({trial["lr"] for outcome in found.values() for trial in outcome["trials"]})
    rows = []
    for model, outcome in found.items():
        at = {trial["lr"]: trial["loss_bits"] for trial in outcome["trials"]}
        shown = ["diverged" if at[lr] is None else markdown.perplexity(2 ** at[lr]) for lr in grid]
        rows.append([model, *shown, f"{outcome['lr']:g}"])
    updates = " or ".join(dict.fromkeys(f"{outcome['updates']:,}" for outcome in found.values()))
    said = f"Learning rates, chosen by validation perplexity after {updates} updates:"
    table = markdown.table(["", *(f"{lr:g}" for lr in grid), "chosen"], rows).rstrip()
    edges = ", ".join(model for model, outcome in found.items() if outcome["at_edge"])
    edge = [f"Best at the edge of the grid, so others may be better: {edges}."] if edges else []
    return "\n\n".join([said, table, *edge])
