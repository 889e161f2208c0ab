"""``compare --hours``: the largest number of updates that fits, the same for every method.

From the measured cost of every model follows how long the comparison takes with any number of
updates. If the largest number that fits is below ``LEAST``, whole groups (all methods of a seed, corpus
and training length) are left out, the least important first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ..errors import BadInput
from ..files import atomic_write
from .comparison import Comparison, as_mapping
from .run import Run
from .timing import PLANNED, Cost, cost_of, makespan, one_thread

#: Updates that a comparison needs at least to be worth anything.
LEAST = 100

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

    def sentences(self) -> list[str]:
        """What was decided, for the user and for the table."""
        said = [
            f"Measured on this machine: {self.updates:,} updates of every run take about "
            f"{self.seconds / 3600:.2g} of {self.hours:g} hours."
        ]
        for seed, corpus, length in self.left_out:
            said.append(f"Left out: seed {seed} of {corpus}, trained at {length}, all methods.")
        return said


def budget(
    comparison: Comparison,
    out: Path,
    parallel: int,
    runs_of: Callable[[Comparison, Path], list[Run]],
) -> Budget:
    """What fits into the hours of a comparison; measured once and then kept in ``out``.

    A comparison that has methods, seeds or lengths added keeps the number of updates of the models
    that are there.

    Args:
        parallel: number of runs at a time.

    Raises:
        BadInput: not even one group fits.
    """
    path, hours = out / "hours.json", comparison.hours
    assert hours is not None
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    asked = as_mapping(comparison)
    if kept and kept["asked"] == asked:
        left_out = tuple((seed, corpus, length) for seed, corpus, length in kept["left_out"])
        return Budget(hours, kept["updates"], left_out, kept["seconds"])
    began = time.monotonic()
    print(f"Measuring this machine to plan {hours:g} hours.", flush=True)
    runs = runs_of(comparison, out)
    cells = list(zip(comparison.cells(), runs))
    costs: dict[tuple, Cost] = {}
    with one_thread() if parallel > 1 and not torch.cuda.is_available() else nullcontext():
        for (corpus, method, length, _), run in cells:
            model = (corpus.name, method, length)  # the seed costs nothing
            costs[model] = costs.get(model) or cost_of(run)
    work = [
        ((seed, corpus.name, length), costs[corpus.name, method, length], run.done)
        for (corpus, method, length, seed), run in cells
    ]
    settled = kept and all(kept["asked"].get(key) == asked[key] for key in _FIXED)
    updates = kept["updates"] if kept and settled else None
    found = plan(work, hours, parallel, updates, time.monotonic() - began)
    with atomic_write(path) as file:
        json.dump({"asked": asked, **asdict(found)}, file, indent=1)
    return found


def plan(
    work: Sequence[tuple[Group, Cost, bool]],
    hours: float,
    parallel: int,
    updates: int | None = None,
    spent: float = 0.0,
) -> Budget:
    """The largest number of updates, then the most groups in their order, that fit.

    Args:
        work: of each run its group, its cost, and whether it is done.
        updates: settled before; only groups are left out.
        spent: seconds of the hours that have passed.
    """
    seconds = hours * 3600 * PLANNED - spent
    groups = list(dict.fromkeys(group for group, _, _ in work))

    def needed(count: int, kept: list[Group]) -> float:
        left = (cost.seconds(count) for group, cost, done in work if group in kept and not done)
        return makespan(left, parallel)

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
    return Budget(hours, updates, tuple(groups[kept:]), needed(updates, groups[:kept]))


def _largest(fits: Callable[[int], bool]) -> int:
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
