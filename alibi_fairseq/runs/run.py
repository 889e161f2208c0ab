"""A run: one model, trained and then evaluated.

Experiments list runs, :mod:`.runner` carries them out. A run's folder holds its checkpoints and logs,
``settings.json`` (what determines the weights; written before the first update) and a stamp for each
number of updates it has reached and each sweep it has finished, so that what is done is not repeated.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..data import probes
from ..errors import UserInputError
from ..results.schema import load_results_file
from ..results.completion import CompletionMarker, check_settings, read_stamp, write_settings
from .child_process import HERE, ChildProcess, Slot

if TYPE_CHECKING:
    from .tuning import Tuning

#: This package's command.
ALIBI = (sys.executable, "-m", "alibi_fairseq")


@dataclass(frozen=True)
class Run:
    """A model to be trained and evaluated.

    Attributes:
        data: fairseq's data argument: a folder, or several joined by ``:``.
        flags: of ``fairseq-train``.
        settings: JSON values that determine the weights; what flags say about the machine does not.
        stops: earlier numbers of updates at which the model is kept.
        final: the checkpoint to evaluate at the end.
        launcher: arguments of the interpreter in front of the training, such as torchrun's.
    """

    name: str
    folder: Path
    data: str
    flags: tuple[str, ...]
    settings: dict
    updates: int
    tokens: int  # that it reads
    evaluations: tuple[EvalStep, ...] = ()
    stops: tuple[int, ...] = ()
    final: str = "checkpoint_last.pt"
    launcher: tuple[str, ...] = field(default=(), repr=False)
    tuning: Tuning | None = field(default=None, repr=False)

    def commands(self) -> list[ChildProcess]:
        """Training and evaluations, in their order."""
        training = [self.command(updates) for updates in (*self.stops, self.updates)]
        return [*training, *(evaluation.command(self) for evaluation in self.evaluations)]

    def command(self, updates: int | None = None) -> ChildProcess:
        """Trains, or resumes, up to a number of updates (default: all)."""
        argv = [sys.executable, *self.launcher, *ALIBI[1:], "train", self.data, *self.flags]
        argv += ["--save-dir", str(self.folder)]
        if updates not in (None, self.updates):
            argv += ["--max-update", str(updates)]
        log = self.folder / "train.log"
        return ChildProcess(f"training {self.name}", argv, log, updates or self.updates)

    def model(self, updates: int | None = None) -> Path:
        """The checkpoint after a number of updates (default: all)."""
        last = updates in (None, self.updates)
        return self.folder / (self.final if last else f"checkpoint_{updates}.pt")

    def trained(self, updates: int | None = None) -> CompletionMarker:
        """Records that the run has made a number of updates (default: all)."""
        path = self.folder / f"trained-{updates or self.updates}.json"
        return CompletionMarker(path, self.settings, outputs=[self.model(updates)])

    @property
    def done(self) -> bool:
        """Whether nothing is left to do; the data must be there."""
        return not self._untrained() and all(each.done(self) for each in self.evaluations)

    def carry_out(self, place: Slot = HERE) -> None:
        self.train(place)
        self.evaluate(place)

    def train(self, place: Slot = HERE) -> None:
        """Train what is not trained yet, see :meth:`.ChildProcess.run`."""
        for updates in self._untrained():
            self._check(updates)
            write_settings(self._settings_file, self.settings)
            # A run killed between its last update and its marker needs no new process.
            if updates_made(self.folder) < updates:
                self.command(updates).run(place)
            self._keep(updates)

    def evaluate(self, place: Slot = HERE) -> None:
        """Measure what is not measured yet, see :meth:`.ChildProcess.run`."""
        for evaluation in self.evaluations:
            if not evaluation.done(self):
                evaluation.measure(self, place)

    def _untrained(self) -> list[int]:
        stops = (*self.stops, self.updates)
        return [updates for updates in stops if not self.trained(updates).holds()]

    @property
    def _settings_file(self) -> Path:
        return self.folder / "settings.json"

    def _check(self, updates: int) -> None:
        if left := trials_left([self]):
            raise UserInputError(f"{self.name}: the trial {left[0].name} has to be done first.")
        found = read_stamp(self._settings_file)
        advice = "choose another folder, or move that one away"
        check_settings(found, self.settings, f"{self.folder} holds a training", advice)
        problem = ""
        if found is None and any(self.folder.glob("checkpoint*.pt")):
            problem = "it holds checkpoints of another training"
        elif self.trained(updates).path.is_file():
            problem = f"{self.model(updates).name} is missing or was changed after the training"
        elif updates_made(self.folder) > updates:
            problem = f"it is past {updates:,} updates without a checkpoint of them"
        if problem:
            raise UserInputError(f"{self.folder}: {problem}; move that folder away to train again.")

    def _keep(self, updates: int) -> None:
        model = self.model(updates)
        if model.name == f"checkpoint_{updates}.pt":
            unfinished = model.with_suffix(".unfinished")
            shutil.copyfile(self.folder / "checkpoint_last.pt", unfinished)
            os.replace(unfinished, model)
        self.trained(updates).write()


@dataclass(frozen=True)
class EvalStep:
    """One ``alibi-fairseq eval``: some lengths and strides on one split."""

    results: Path  # which several sweeps may share
    lengths: tuple[int, ...]
    strides: tuple[str, ...] = ("full",)
    subset: str = "valid"
    updates: int | None = None  # of the model (default: all)
    flags: tuple[str, ...] = ()
    name: str = ""  # tells it apart from others of its run with the same split and strides
    data: str = ""  # another corpus than the run's
    settings: dict = field(default_factory=dict)  # of the flags, those that determine the results

    def command(self, run: Run) -> ChildProcess:
        argv = [*ALIBI, "eval", self.data or run.data, "--path", str(run.model(self.updates))]
        argv += ["--lengths", ",".join(map(str, self.lengths)), "--stride", ",".join(self.strides)]
        argv += ["--subset", self.subset, "--out", str(self.results), *self.flags]
        what = " ".join(filter(None, ("evaluating", run.name, self.name)))
        return ChildProcess(what, argv, run.folder / "evaluate.log")

    def done(self, run: Run) -> bool:
        cells = self._cells(run)
        measured = set(map(point_of, cells))
        return self._fresh(run, cells) and self._stamp(run).holds() and measured >= self.points

    def measure(self, run: Run, place: Slot) -> None:
        stamp = self._stamp(run)
        another_text = stamp.path.is_file() and not stamp.holds()
        if another_text or not self._fresh(run, self._cells(run)):
            self.results.unlink(missing_ok=True)
        self.command(run).run(place)
        stamp.write()

    def _stamp(self, run: Run) -> CompletionMarker:
        model = run.model(self.updates)
        case = [model.stem, self.subset, ",".join(self.strides), *filter(None, [self.name])]
        name = f"evaluated-{'-'.join(case)}.json"
        folders = (self.data or run.data).split(":")
        splits = [Path(folder) / f"{self.subset}.bin" for folder in folders]
        there = [split for split in splits if split.is_file()]
        return CompletionMarker(run.folder / name, self.settings, [model, *there])

    def _fresh(self, run: Run, cells: list[dict]) -> bool:
        """Whether cells are of the model as it is."""
        sha256 = run.trained(self.updates).output_sha256
        return all(cell["checkpoint_sha256"] == sha256 for cell in cells)

    def _cells(self, run: Run) -> list[dict]:
        found = load_results_file(self.results)["cells"] if self.results.is_file() else []
        model = run.model(self.updates).resolve()
        return [cell for cell in found if Path(cell.get("checkpoint", "")).resolve() == model]

    @property
    def points(self) -> set[tuple[str, int, int]]:
        return {
            (self.subset, length, length if stride == "full" else int(stride))
            for length in self.lengths
            for stride in self.strides
        }

    def document(self) -> dict:
        """The results without those of other sweeps; a variant has its name as a label."""
        document = load_results_file(self.results)
        label = {"label": self.name} if self.name and not self.data else {}
        cells = [cell | label for cell in document["cells"] if point_of(cell) in self.points]
        return {**document, "cells": cells}


class ProbeEvalStep(EvalStep):
    """One ``alibi-fairseq eval`` of a probe, whose test sequences have these lengths."""

    def _stamp(self, run: Run) -> CompletionMarker:
        settings = {"lengths": self.lengths, "flags": self.flags}
        made_of = [run.model(self.updates), Path(run.data) / probes.SETTINGS_FILE]
        return CompletionMarker(run.folder / "probed.json", settings, made_of, [self.results])


def point_of(cell: dict) -> tuple[str, int, int]:
    """Split, length and stride; a probe is measured without the first and the last."""
    return (cell.get("subset", "valid"), cell["length"], cell.get("stride", cell["length"]))


def all_trials(runs: Iterable[Run]) -> list[Run]:
    """The trials that choose settings of these runs, each once."""
    found = {trial.name: trial for run in runs if run.tuning for trial in run.tuning.trials}
    return [*found.values()]


def trials_left(runs: Iterable[Run]) -> list[Run]:
    """Those of these trials that are left."""
    return [trial for trial in all_trials(runs) if not trial.done]


def updates_made(save_dir: Path) -> int:
    """Return the number of updates of the last checkpoint; 0 without one."""
    path = save_dir / "checkpoint_last.pt"
    if not path.is_file():
        return 0
    from ..checkpoints.loading import updates_of

    return updates_of(path)
