"""Estimated costs of the paper's runs, from the comments at the head of the recipes' files.

The comments derive V100 hours from the paper's speeds and GPU hours, which include neither
validation nor evaluation. Tests compare the comments with the recipes and the paper's numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..reporting import markdown
from .recipe import CONFIGS, Recipe

#: Bytes per number in a checkpoint. All numbers are fp32.
BYTES_PER_NUMBER = 4
#: Numbers per weight in the state of each optimizer.
OPTIMIZER_NUMBERS = {"nag": 1, "adam": 2}
BASIS = (
    "Estimates. V100 hours: the paper's speeds, without validation and evaluation "
    "(configs/README.md). Hours: V100 hours divided by the GPUs; in total, one run after another. "
    "Checkpoints: weights and state of the optimizer in fp32; data are not included. "
    f"{markdown.NOTHING}: unknown."
)


@dataclass(frozen=True)
class RunCost:
    """Estimated cost of a run. Unknown values are None.

    Attributes:
        name: name of the run.
        gpus: number of GPUs; 0 for a CPU.
        v100_hours: hours of one V100.
        checkpoint_gb: size of all checkpoints in 10⁹ bytes.
    """

    name: str
    gpus: int
    v100_hours: float | None
    checkpoint_gb: float | None

    @property
    def hours(self) -> float | None:
        """Duration of the run in hours."""
        if self.v100_hours is None or not self.gpus:
            return None
        return self.v100_hours / self.gpus


def stated_number(recipe: Recipe, unit: str) -> int | None:
    """Return the number in front of a unit in the comment at the head of a recipe's file.

    Args:
        recipe: the recipe.
        unit: text after the number, such as ``V100 hours``.
    """
    path = CONFIGS / recipe.folder / f"{recipe.name}.yaml"
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    match = re.search(rf"([\d,]+) {unit}", " ".join(lines))
    if match is None:
        return None
    return int(match[1].replace(",", ""))


def run_cost(recipe: Recipe, updates: int, gpus: int, checkpoints: int) -> RunCost:
    """Estimate the cost of a run at the paper's scale.

    Args:
        recipe: the recipe.
        updates: number of updates of the run, at most as many as in the recipe.
        gpus: number of GPUs; 0 for a CPU, whose speed is unknown.
        checkpoints: number of checkpoints that the run keeps.
    """
    recipe_hours = stated_number(recipe, "V100 hours")
    v100_hours = None
    if recipe_hours is not None and gpus:
        v100_hours = recipe_hours * updates / recipe.updates
    parameters = stated_number(recipe, "parameters")
    checkpoint_gb = None
    if parameters is not None:
        optimizer = str(recipe.options["optimizer"]["_name"])
        numbers_per_weight = 1 + OPTIMIZER_NUMBERS[optimizer]
        checkpoint_gb = checkpoints * parameters * numbers_per_weight * BYTES_PER_NUMBER / 1e9
    return RunCost(recipe.path, gpus, v100_hours, checkpoint_gb)


def cost_table(costs: Iterable[RunCost]) -> str:
    """Format the costs of runs and their totals in Markdown.

    A sum with unknown parts is unknown.
    """
    costs = list(costs)
    rows = []
    for cost in costs:
        gpus = str(cost.gpus) if cost.gpus else "CPU"
        rows.append(
            [
                cost.name,
                gpus,
                _number(cost.v100_hours),
                _number(cost.hours),
                _number(cost.checkpoint_gb),
            ]
        )
    v100_hours = _total(cost.v100_hours for cost in costs)
    hours = _total(cost.hours for cost in costs)
    checkpoint_gb = _total(cost.checkpoint_gb for cost in costs)
    rows.append(["total", "", _number(v100_hours), _number(hours), _number(checkpoint_gb)])
    headers = ["run", "GPUs", "V100 hours", "hours", "checkpoints (GB)"]
    return f"{markdown.table(headers, rows)}\n{BASIS}"


def _number(value: float | None) -> str:
    """Format a number, or a dash if it is unknown."""
    if value is None:
        return markdown.NOTHING
    return f"{value:,.0f}"


def _total(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None if a value is unknown."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total
