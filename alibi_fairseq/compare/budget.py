"""``--hours``: as many updates as fit, the same for every method, from a few measured on this machine.

Every model is trained for a few updates and evaluated on a small part of the text, with the
commands, the threads and the GPUs of the comparison itself. From these times follows how long the
comparison takes with any number of updates. The largest number that fits is taken. If it is below
``LEAST``, whole groups (all methods of a seed, corpus and training length) are left out, the least
important first.
"""

from __future__ import annotations

import heapq
import json
import shutil
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from ..errors import BadInput
from ..files import atomic_write
from ..results.schema import load_document
from ..workflow import Command, Step, run_chains
from .cell import Cell, save_interval
from .description import Comparison, as_mapping

#: A measurement ends after so many updates, or the first update after so many seconds.
UPDATES, SECONDS = 20, 20.0
#: Tokens of a measured evaluation.
EVALUATED = {"cpu": 50_000, "cuda": 2_000_000}
#: Updates that a comparison needs at least to be worth anything.
LEAST = 100
#: The share of the hours that is planned; the rest is for what differs from the measurement.
PLANNED = 0.9

#: What methods are compared at: seed, name of the corpus, training length.
Group = tuple[int, str, int]


@dataclass(frozen=True)
class Cost:
    """Seconds that one model takes.

    Attributes:
        start: of both of its commands: imports, loading data and model.
        update: one update.
        validation: one pass over the validation split.
        evaluation: all lengths and strides.
    """

    start: float
    update: float
    validation: float
    evaluation: float

    def seconds(self, updates: int, epoch: float) -> float:
        """Of training and evaluation.

        Args:
            epoch: updates per epoch.
        """
        validations = updates / save_interval(updates) + updates / epoch + 1
        return self.start + updates * self.update + validations * self.validation + self.evaluation


@dataclass(frozen=True)
class Budget:
    """What fits.

    Attributes:
        hours: that were asked for.
        updates: of every run.
        left_out: groups that are not trained.
        seconds: of what is planned.
    """

    hours: float
    updates: int
    left_out: tuple[Group, ...]
    seconds: float

    def keeps(self, cell: Cell) -> bool:
        """Whether a cell is part of what fits."""
        return group_of(cell) not in self.left_out

    def sentences(self) -> list[str]:
        """What was decided, for the user and for the table."""
        said = [
            f"Measured on this machine: {self.updates:,} updates of every run take about "
            f"{self.seconds / 3600:.2g} of {self.hours:g} hours."
        ]
        for seed, corpus, length in self.left_out:
            said.append(f"Left out: seed {seed} of {corpus}, trained at {length}, all methods.")
        return said


def group_of(cell: Cell) -> Group:
    return (cell.seed, cell.corpus.name, cell.train_length)


def budget(
    comparison: Comparison,
    hours: float,
    cells: Sequence[Cell],
    out: Path,
    environments: Sequence[dict[str, str]],
) -> Budget:
    """What fits into the hours of a comparison; measured once and then kept in ``out``.

    A comparison that has methods, seeds or lengths added keeps the number of updates of the models
    that are there.

    Args:
        hours: of the comparison.
        cells: of the whole comparison, with their data prepared.
        environments: variables of the runs that go on at the same time.

    Raises:
        BadInput: not even one group fits.
    """
    path = out / "hours.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    asked = as_mapping(comparison)
    if kept and kept["asked"] == asked:
        left_out = tuple((seed, corpus, length) for seed, corpus, length in kept["left_out"])
        return Budget(hours, kept["updates"], left_out, kept["seconds"])
    began = time.monotonic()
    print(f"Measuring this machine to plan {hours:g} hours.", flush=True)
    costs = measure(cells, out / "measuring", environments)
    left = hours * 3600 * PLANNED - (time.monotonic() - began)
    updates = None
    if kept and all(kept["asked"].get(key) == asked[key] for key in _FIXED):
        updates = kept["updates"]
    found = replace(plan(cells, costs, left, len(environments), updates), hours=hours)
    with atomic_write(path) as file:
        json.dump({"asked": asked, **asdict(found)}, file, indent=1)
    return found


#: What two comparisons must share to have the same number of updates.
_FIXED = ("hours", "arch", "tokens_per_update", "lr", "train_flags")


def plan(
    cells: Sequence[Cell],
    costs: dict[tuple, Cost],
    seconds: float,
    parallel: int,
    updates: int | None = None,
) -> Budget:
    """The largest number of updates, then the most groups in their order, that fit.

    Args:
        costs: by :func:`model_of`.
        updates: settled before; only groups are left out.
    """
    groups = list(dict.fromkeys(map(group_of, cells)))

    def needed(count: int, groups: Iterable[Group]) -> float:
        kept = set(groups)
        return makespan(
            (
                costs[model_of(cell)].seconds(count, epoch_of(cell))
                for cell in cells
                if group_of(cell) in kept and not cell.done
            ),
            parallel,
        )

    if updates is None:
        updates = LEAST
        if needed(updates, groups) <= seconds:
            updates = rounded(_largest(lambda count: needed(count, groups) <= seconds))
    kept = len(groups)
    while kept and needed(updates, groups[:kept]) > seconds:
        kept -= 1
    if not kept:
        hours = needed(updates, groups[:1]) / 3600 / PLANNED
        raise BadInput(
            f"--hours: {updates} updates of every method take about {hours:.2g} hours on this "
            "machine; give that many, or compare fewer methods or a smaller --arch."
        )
    needs = needed(updates, groups[:kept])
    return Budget(seconds / 3600, updates, tuple(groups[kept:]), needs)


def _largest(fits) -> int:
    """The largest number that fits, at least ``LEAST``, which does."""
    low, high = LEAST, 2 * LEAST
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def rounded(updates: int) -> int:
    """Down to two digits."""
    unit = 10 ** (len(str(updates)) - 2)
    return updates // unit * unit


def makespan(seconds: Iterable[float], parallel: int) -> float:
    """Until all are done, if each begins as soon as one of so many places is free."""
    places = [0.0] * parallel
    for each in seconds:
        heapq.heappush(places, heapq.heappop(places) + each)
    return max(places)


def model_of(cell: Cell) -> tuple[str, str, int]:
    """What determines the cost of a cell; its seed does not."""
    return (cell.corpus.name, cell.method, cell.train_length)


def epoch_of(cell: Cell) -> float:
    """Updates per epoch."""
    return max(1.0, tokens_in(cell.data, "train") / cell.comparison.tokens_per_update)


def tokens_in(data: Path, split: str) -> int:
    """Tokens of a split, from the size of its file: two bytes each in a small vocabulary."""
    words = (data / "dict.txt").read_bytes().count(b"\n")
    return (data / f"{split}.bin").stat().st_size // (2 if words < 65_000 else 4)


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
