"""The training of one run, with a checkpoint after each number of updates that the paper evaluates."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import BadInput
from ..launcher import Machine, plan, process
from ..recipes import Recipe
from ..workflow import Claim, Command, Stamp, Step
from .data import Data


@dataclass(frozen=True)
class Training:
    """A run and its folder.

    Attributes:
        recipe: the scaled recipe.
        folder: of checkpoints and logs.
    """

    recipe: Recipe
    folder: Path
    data: Data
    machine: Machine
    log_interval: int

    def model(self, updates: int) -> Path:
        """The checkpoint to evaluate: at the end of the run the best on validation, as in the paper."""
        best = updates == self.recipe.updates
        return self.folder / ("checkpoint_best.pt" if best else f"checkpoint_{updates}.pt")

    def stamp(self, updates: int) -> Stamp:
        """Records that the run has made this many updates."""
        path = self.folder / f"trained-{updates}.json"
        return Stamp(path, self._begun_with(), [], [self.model(updates)])

    def command(self, updates: int) -> list[str]:
        """Trains, or resumes, up to a number of updates.

        Raises:
            BadInput: the machine's GPUs cannot share an update evenly.
        """
        flags = ["--save-dir", str(self.folder), "--log-format", "json"]
        flags += ["--log-interval", str(self.log_interval)]
        recipe = replace(self.recipe, updates=updates)
        return plan(recipe, self.data.argument, self.machine, flags, max_restarts=3)

    def step(self, updates: int) -> Step:
        stamp = self.stamp(updates)
        return Step(
            title=f"training {self.recipe.path}",
            work=Command(self.command(updates), self.folder / "train.log", updates),
            done=stamp.holds,
            check=partial(self._check, updates),
            begin=self._claim.write,
            reached=lambda: process.has_reached(self.folder, updates),
            finish=partial(self._finish, updates),
        )

    @property
    def _claim(self) -> Claim:
        return Claim(self.folder / "begun.json", self._begun_with())

    def _begun_with(self) -> dict:
        # Not the machine: any number of GPUs sees the same tokens in each update.
        return {"recipe": self.recipe.settings(), **self.data.identity}

    def _check(self, updates: int) -> None:
        claim = self._claim
        claim.check(
            f"The training in {self.folder} was begun",
            "move that folder away or choose another --work-dir",
        )
        if not claim.path.is_file() and any(self.folder.glob("checkpoint*.pt")):
            raise BadInput(
                f"{self.folder} holds checkpoints of unknown origin (no {claim.path.name}); move "
                "that folder away or choose another --work-dir."
            )
        model = self.model(updates)
        if self.stamp(updates).path.is_file():
            raise BadInput(
                f"{model} is missing or was changed after the training; move {self.folder} away to "
                "train again."
            )
        if process.has_reached(self.folder, updates + 1):
            raise BadInput(
                f"The training in {self.folder} is past {updates:,} updates without a "
                "checkpoint of them; move that folder away to train again."
            )

    def _finish(self, updates: int) -> None:
        model = self.model(updates)
        if updates != self.recipe.updates:
            unfinished = model.with_suffix(".unfinished")
            shutil.copyfile(self.folder / "checkpoint_last.pt", unfinished)
            os.replace(unfinished, model)
        if not model.is_file():
            raise BadInput(
                f"The training in {self.folder} left no {model.name}; move that folder away to "
                "train again."
            )
        self.stamp(updates).write()
