"""Tuning of learning rates: short trials, compared by validation loss.

Each model of a comparison is trained at each candidate rate for the same fraction of its updates,
with the schedule of that shorter training and the first seed. The trials are compared on the split
``valid``, whichever split is evaluated later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..completion_marker import CompletionMarker, read_json_if_present
from ..errors import UserInputError
from ..reporting import markdown
from ..results.files import load_training
from .execution import DEFAULT_SLOT, Slot
from .run import Run


@dataclass(frozen=True)
class Tuning:
    """Learning rate of a model and the trials that choose it.

    Attributes:
        model: label of the model in tables.
        marker: marker of the outcome. Its path identifies the model, whose label need not be
            unique.
        lr: chosen learning rate; the first candidate while trials are unfinished.
        trials: trials that must be complete before the choice. Empty: the outcome is recorded, and
            the folders of the trials are gone.
        outcome: JSON values, or None while trials are unfinished: ``lr``; ``updates`` of each
            trial; ``at_edge``, true if a rate outside the grid may be better; ``trials``, each with
            ``lr``, ``loss_bits``, and ``provenance``.
        failure: reason for which the trials chose no learning rate; empty without one.
    """

    model: str
    marker: CompletionMarker
    lr: float
    trials: tuple[Run, ...]
    outcome: dict | None = None
    failure: str = ""

    @classmethod
    def choose(
        cls,
        model: str,
        trials: Mapping[float, Run],
        path: Path,
        valid_sha256: str | None = None,
    ) -> Tuning:
        """Choose the learning rate with the lowest validation loss, once all trials are done.

        Args:
            model: label of the model in tables.
            trials: trial of each candidate.
            path: file of the outcome, which outlasts the folders of the trials.
            valid_sha256: hash of the validation splits (:func:`.data_hashes.data_sha256`); None if
                they do not exist yet.
        """
        runs = tuple(trials.values())
        first_candidate = next(iter(trials))
        marker = CompletionMarker(path, {"trials": [run.settings for run in runs]})
        unfinished = cls(model, marker, first_candidate, runs)
        trials_done = all(run.is_complete for run in runs)
        recorded = marker.result if marker.holds() else None
        if recorded is not None and not _has_other_data(recorded, valid_sha256):
            if not trials_done:
                runs = ()  # the folders of the trials are gone
            return cls(model, marker, recorded["lr"], runs, recorded)
        if not trials_done:
            return unfinished
        try:
            outcome = _outcome(model, trials)
        except UserInputError as error:  # other models can be trained nevertheless
            return replace(unfinished, failure=str(error))
        if _has_other_data(outcome, valid_sha256):
            failure = _other_data_error(model, runs)
            return cls(model, marker, outcome["lr"], runs, failure=failure)
        return cls(model, marker, outcome["lr"], runs, outcome)

    @property
    def losses(self) -> dict[float, float | None]:
        """Loss of each trial in bits per token, None if it diverged; empty without an outcome."""
        if self.outcome is None:
            return {}
        return {trial["lr"]: trial["loss_bits"] for trial in self.outcome["trials"]}

    def record(self) -> None:
        """Write the outcome, which then outlasts the folders of the trials.

        Raises:
            UserInputError: the trials chose no learning rate.
        """
        if self.failure:
            raise UserInputError(self.failure)
        if self.outcome is None or self.marker.holds() and self.marker.result == self.outcome:
            return
        self.marker.write(self.outcome)


@dataclass(frozen=True)
class TunedRun(Run):
    """Run whose learning rate may be chosen by trials.

    Attributes:
        tuning: choice of its learning rate. None: there is only one rate.
    """

    tuning: Tuning | None = None

    @property
    def is_complete(self) -> bool:
        """True if a learning rate was chosen, and the run and its trials are complete."""
        if self.tuning is not None and self.tuning.failure:
            return False
        return super().is_complete

    def train(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Record the choice of the learning rate, then train as :meth:`.Run.train`."""
        if self.tuning is not None:
            self.tuning.record()
            self._set_other_rate_aside()
        super().train(slot)

    def check_settings(self) -> None:
        """Raise UserInputError as :meth:`.Run.check_settings`, but not for another tuned rate."""
        if self._replaced_rate() is None:
            super().check_settings()

    def _replaced_rate(self) -> str | None:
        """Return the rate of the training in the folder, if trials now choose another one."""
        existing = read_json_if_present(self._settings_file)
        if self.tuning is None or self.tuning.outcome is None or existing is None:
            return None
        others, rate = _without_rate(existing)
        own_others, own_rate = _without_rate(self.settings)
        return rate if others == own_others and rate != own_rate else None

    def _set_other_rate_aside(self) -> None:
        """Rename the folder if it holds the training at a rate that is no longer the best one.

        A rate that was added to ``--lr`` may be better. If its training was set aside earlier, it
        gets the name of the run again.
        """
        replaced_rate = self._replaced_rate()
        if replaced_rate is None:
            return
        _, rate = _without_rate(self.settings)
        aside = self._folder_aside(replaced_rate)
        os.replace(self.folder, aside)
        print(f"{self.name}: --lr {rate} is better than {replaced_rate}, now in {aside}.")
        if self._folder_aside(rate).is_dir():
            os.replace(self._folder_aside(rate), self.folder)

    def _folder_aside(self, rate: str) -> Path:
        """Return the folder of the training at a rate that is not the best one."""
        return self.folder.with_name(f"{self.folder.name}-replaced-lr{rate}")


def _without_rate(settings: dict) -> tuple[dict, str]:
    """Return the settings of a run without its learning rate, and the rate."""
    options = list(settings["options"])
    rate = options.pop(options.index("--lr") + 1)
    return {**settings, "options": options}, rate


def _outcome(model: str, trials: Mapping[float, Run]) -> dict:
    """Return the outcome of finished trials, as :class:`Tuning` describes it.

    Raises:
        UserInputError: every trial diverged.
    """
    losses = {lr: _lowest_loss(trial) for lr, trial in trials.items()}
    best = None
    lowest = math.inf
    for lr, loss in losses.items():
        if loss is not None and loss < lowest:
            best = lr
            lowest = loss
    if best is None:
        rates = ", ".join(map(str, trials))
        raise UserInputError(f"--lr: {model} diverged at {rates}. Try smaller values.")
    return {
        "lr": best,
        "at_edge": best in (min(trials), max(trials)),
        "updates": next(iter(trials.values())).updates,
        "trials": [
            {"lr": lr, "loss_bits": losses[lr], "provenance": _provenance(trial)}
            for lr, trial in trials.items()
        ],
    }


def _has_other_data(outcome: dict, valid_sha256: str | None) -> bool:
    """Return True if a trial was validated on other data."""
    if valid_sha256 is None:
        return False
    origins = [trial["provenance"] for trial in outcome["trials"] if trial["provenance"]]
    return any(origin["data_sha256"] not in (None, valid_sha256) for origin in origins)


def _other_data_error(model: str, trials: Sequence[Run]) -> str:
    """Return the error for a learning rate that was chosen on another validation split."""
    folders = os.path.commonprefix([str(trial.folder) for trial in trials])
    return (
        f"The learning rate of {model} was chosen on another validation split. Move {folders}* "
        "away to choose it again."
    )


def _lowest_loss(trial: Run) -> float | None:
    """Return the lowest loss of a trial on ``valid``, in bits per token; None if it diverged."""
    if trial.diverged:
        return None
    losses = []
    for validation in load_training(trial.folder).records:
        if validation.subset != "valid":  # --valid-subset can name several splits
            continue
        if validation.loss_bits is not None:
            losses.append(validation.loss_bits)
    return min(losses, default=None)


def _provenance(trial: Run) -> dict | None:
    """Return the provenance of a trial, without this machine's interpreter; None if it diverged."""
    if trial.diverged:
        return None
    provenance = load_training(trial.folder).provenance.model_dump(exclude_unset=True)
    return {**provenance, "command": trial.training_command(trial.updates).command_line}


def tuning_table(tunings: Iterable[Tuning]) -> str:
    """Return validation perplexity by learning rate as Markdown.

    Args:
        tunings: choices whose trials are complete.
    """
    by_path = {tuning.marker.path: tuning for tuning in tunings}  # all seeds of a model have one
    rates: set[float] = set()
    update_counts: dict[str, None] = {}
    at_edge = []
    for tuning in by_path.values():
        assert tuning.outcome is not None
        rates.update(tuning.losses)
        update_counts[f"{tuning.outcome['updates']:,}"] = None
        if tuning.outcome["at_edge"]:
            at_edge.append(tuning.model)
    grid = sorted(rates)
    updates = " or ".join(update_counts)
    headers = ["", *(f"{lr:g}" for lr in grid), "chosen"]
    rows = [_tuning_row(tuning, grid) for tuning in by_path.values()]
    paragraphs = [
        f"Learning rates, chosen by validation perplexity after {updates} updates:",
        markdown.table(headers, rows).rstrip(),
    ]
    if at_edge:
        models = ", ".join(at_edge)
        paragraphs.append(f"Best at the edge of the grid, so others may be better: {models}.")
    return "\n\n".join(paragraphs)


def _tuning_row(tuning: Tuning, grid: Iterable[float]) -> list[str]:
    """Return the row of a model: perplexity at each learning rate, and the chosen rate."""
    row = [tuning.model]
    for lr in grid:
        loss = tuning.losses[lr]
        if loss is None:
            row.append("diverged")
        else:
            row.append(markdown.perplexity(2**loss))
    row.append(f"{tuning.lr:g}")
    return row
