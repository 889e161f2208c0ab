"""``--hours``: as many updates as fit, the same for every method.

From the measured cost of every model follows how long the comparison takes with any number of
updates. The largest number that fits is taken. If it is below ``LEAST``, whole groups (all methods
of a seed, corpus and training length) are left out, the least important first.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import BadInput
from ..files import atomic_write
from .cell import Cell
from .cost import Cost, epoch_of, model_of
from .description import Comparison, as_mapping
from .measuring import measure

#: Updates that a comparison needs at least to be worth anything.
LEAST = 100
#: The share of the hours that is planned; the rest is for what differs from the measurement.
PLANNED = 0.9

#: What methods are compared at: seed, name of the corpus, training length.
Group = tuple[int, str, int]
#: What two comparisons must share to have the same number of updates.
_FIXED = ("hours", "arch", "tokens_per_update", "lr", "train_flags")


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
    spent = time.monotonic() - began
    updates = None
    if kept and all(kept["asked"].get(key) == asked[key] for key in _FIXED):
        updates = kept["updates"]
    found = plan(cells, costs, hours, len(environments), updates, spent)
    with atomic_write(path) as file:
        json.dump({"asked": asked, **asdict(found)}, file, indent=1)
    return found


def plan(
    cells: Sequence[Cell],
    costs: dict[tuple, Cost],
    hours: float,
    parallel: int,
    updates: int | None = None,
    spent: float = 0.0,
) -> Budget:
    """The largest number of updates, then the most groups in their order, that fit.

    Args:
        costs: by :func:`model_of`.
        updates: settled before; only groups are left out.
        spent: seconds of the hours that have passed.
    """
    seconds = hours * 3600 * PLANNED - spent
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
        least = (needed(updates, groups[:1]) + spent) / 3600 / PLANNED
        raise BadInput(
            f"--hours: {updates} updates of every method take about {least * 1.1:.2g} hours on this "
            "machine; give that many, or compare fewer methods or a smaller --arch."
        )
    needs = needed(updates, groups[:kept])
    return Budget(hours, updates, tuple(groups[kept:]), needs)


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
