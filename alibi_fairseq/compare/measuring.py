"""The cost of every model of a comparison, measured with its own commands.

Every model is trained for a few updates and evaluated on a small part of the text, with the
threads and the GPUs of the comparison itself.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..errors import BadInput
from ..results.schema import load_document
from ..workflow import Command, Step, run_chains
from .cell import Cell
from .cost import Cost, model_of, tokens_in

#: A measurement ends after so many updates, or the first update after so many seconds.
UPDATES, SECONDS = 20, 20.0
#: Tokens of a measured evaluation.
EVALUATED = {"cpu": 50_000, "cuda": 2_000_000}


def measure(
    cells: Sequence[Cell], folder: Path, environments: Sequence[dict[str, str]]
) -> dict[tuple, Cost]:
    """Seconds of each model, by :func:`model_of`.

    Args:
        folder: for what is written meanwhile; it is removed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    of_model = {model_of(cell): cell for cell in reversed(cells)}
    measured = {
        model: Measured(replace(cell, folder=folder / "-".join(map(str, model))))
        for model, cell in of_model.items()
    }
    chains = [(f"measuring {each.cell.name}", each.steps()) for each in measured.values()]
    run_chains(chains, len(environments), environments)
    costs = {model: each.cost() for model, each in measured.items()}
    shutil.rmtree(folder)
    return costs


class Measured:
    """The measurement of one model.

    Args:
        cell: with a folder of its own.
    """

    def __init__(self, cell: Cell):
        self.cell = cell
        self._began = 0.0
        self._seconds: dict[str, float] = {}

    def steps(self) -> list[Step]:
        return [
            self._step("training", self.train_command),
            *(self._step(f"stride {s}", self.evaluate(s)) for s in self.cell.comparison.strides),
        ]

    def _step(self, name: str, command: Command) -> Step:
        def begin() -> None:
            self._began = time.monotonic()

        def finish() -> None:
            self._seconds[name] = time.monotonic() - self._began

        done = self._seconds.__contains__
        return Step(
            f"measuring {self.cell.name}, {name}", command, lambda: done(name), finish, begin
        )

    @property
    def train_command(self) -> Command:
        words = [
            *self.cell.train_command.words,
            *("--max-update", str(UPDATES), "--stop-time-hours", str(SECONDS / 3600)),
            *("--disable-validation", "--log-interval", "1", "--tensorboard-logdir", ""),
        ]
        return Command(words, self.cell.folder / "train.log", UPDATES)

    def evaluate(self, stride: str) -> Command:
        """The middle part of the sweep at one stride."""
        words = [*self.cell.evaluate_command.words, "--stride", stride]
        words += ["--out", str(self._results(stride))]
        parts = self._parts(stride)
        if parts > 1 and self.cell.method != "transformer_xl":  # its windows depend on each other
            words += ["--shard", f"{(parts + 1) // 2}/{parts}"]
        return Command(words, self.cell.folder / "evaluate.log")

    def _parts(self, stride: str) -> int:
        what = self.cell.comparison
        inputs = tokens_in(self.cell.data, what.subset)
        if stride != "full":
            inputs = inputs * min(what.eval_lengths) // int(stride)
        return inputs // EVALUATED["cuda" if torch.cuda.is_available() else "cpu"]

    def _results(self, stride: str) -> Path:
        return self.cell.folder / f"{stride}.json"

    def cost(self) -> Cost:
        what = self.cell.comparison
        updates = update_seconds(self.cell.folder / "train.log", what.tokens_per_update)
        start = sum(self._seconds.values()) - sum(updates)
        evaluation, per_token = 0.0, []
        for stride in what.strides:
            for cell in load_document(self._results(stride))["cells"]:
                start -= cell["seconds"]
                per_token.append(cell["seconds"] / cell["tokens"])
                evaluation += per_token[-1] * cell.get("split_tokens", cell["tokens"])
        validation = min(per_token) * tokens_in(self.cell.data, "valid")  # of short windows
        later = updates[len(updates) // 2 :]  # the first ones allocate memory and load kernels
        return Cost(max(0.0, start), statistics.median(later), validation, evaluation)


def update_seconds(log: Path, tokens: int) -> list[float]:
    """Seconds of each update of a training, from the speeds in its log.

    Args:
        tokens: per update.
    """
    speeds = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        _, brace, rest = line.partition("| train_inner | {")
        if brace:
            speeds.append(float(json.loads("{" + rest)["wps"]))
    known = [tokens / speed for speed in speeds if speed > 0]
    if not known:
        raise BadInput(f"--hours: no speed was measured; see {log}.")
    return known
