"""Estimated costs of the paper's runs.

The V100 hours of the recipes (``configs/*/recipes.csv``) follow from the paper's speeds and GPU
hours, which include neither validation nor evaluation. The hours of evaluations follow from the
number of windows and the speeds of Table 1. H200 hours follow from measured training steps
(``configs/h200_steps.csv``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..reporting import markdown
from . import published
from .recipe import CONFIGS, Recipe
from .trainings import PaperEvaluation

#: Bytes per number in a checkpoint. All numbers are fp32.
BYTES_PER_NUMBER = 4
#: Numbers per weight in the state of each optimizer.
OPTIMIZER_NUMBERS = {"nag": 1, "adam": 2}
#: Tokens of a split by corpus and split (data-prep/wikitext-103/README.md). Those of the other
#: corpora depend on the edition.
SPLIT_TOKENS = {("wikitext-103", "valid"): 217_646, ("wikitext-103", "test"): 245_569}
#: Parameters of the model whose steps ``configs/h200_steps.csv`` has.
MEASURED_PARAMETERS = 246_933_504
BASIS = (
    "Estimates. V100 hours: the paper's speeds, without validation (configs/README.md). Hours: "
    "V100 hours divided by the GPUs; in total, one run after another. H200 hours: one H200, from "
    "steps measured at 512 and 3,072 tokens. Evaluation: hours of one V100 at the speeds of Table "
    "1; an evaluation uses one GPU. A training that was stopped counts as a whole. "
    "Checkpoints: weights and state of the optimizer in fp32; data is not included. "
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
        evaluation_hours: hours of one V100 for all evaluations.
        h200_hours: hours of one H200 for the training.
    """

    name: str
    gpus: int
    v100_hours: float | None
    checkpoint_gb: float
    evaluation_hours: float | None = None
    h200_hours: float | None = None

    @property
    def hours(self) -> float | None:
        """Duration of the run in hours."""
        if self.v100_hours is None or not self.gpus:
            return None
        return self.v100_hours / self.gpus


def run_cost(recipe: Recipe, updates: int, gpus: int, checkpoints: int) -> RunCost:
    """Estimate the cost of a run at the paper's scale.

    Args:
        recipe: the recipe.
        updates: number of updates of the run, at most as many as in the recipe.
        gpus: number of GPUs; 0 for a CPU, whose speed is unknown.
        checkpoints: number of checkpoints that the run keeps.
    """
    v100_hours = None
    if recipe.v100_hours is not None and gpus:
        v100_hours = recipe.v100_hours * updates / recipe.updates
    optimizer = str(recipe.options["optimizer"]["_name"])
    numbers = recipe.parameters * (1 + OPTIMIZER_NUMBERS[optimizer])
    checkpoint_gb = checkpoints * numbers * BYTES_PER_NUMBER / 1e9
    h200_hours = h200_training_hours(recipe, updates) if gpus else None
    return RunCost(recipe.path, gpus, v100_hours, checkpoint_gb, h200_hours=h200_hours)


def h200_training_hours(recipe: Recipe, updates: int) -> float | None:
    """Estimate the hours of a training on one H200; None for a position method not measured.

    The steps were measured with the model of WikiText-103. Their time is scaled by the number of
    parameters for other models.
    """
    points = []
    for row in published.read_rows(CONFIGS / "h200_steps.csv"):
        if row["position_method"] == recipe.position_method:
            points.append((row["train_length"], row["milliseconds"] / 1000 / row["tokens"]))
    if not points:
        return None
    seconds = updates * recipe.batch.tokens_per_update * _interpolate(points, recipe.train_length)
    return seconds / 3600 * recipe.parameters / MEASURED_PARAMETERS


def evaluation_hours(evaluation: PaperEvaluation) -> float | None:
    """Estimate the hours of an evaluation on one V100; None for a split of unknown size."""
    recipe = evaluation.recipe
    tokens = SPLIT_TOKENS.get((recipe.corpus, evaluation.split))
    if tokens is None:
        return None
    points = []
    for row in published.rows("table01"):
        if row["position_method"] == recipe.position_method:
            points.append((row["train_length"], 1 / row["eval_words_per_second"]))
    seconds = 0.0
    for length in evaluation.lengths:
        stride = length if evaluation.stride == "full" else evaluation.stride
        windows = 1 + math.ceil(max(0, tokens - length) / stride)
        seconds += windows * length * _interpolate(points, length)
    return seconds / 3600


def _interpolate(points: list[tuple[int, float]], length: int) -> float:
    """Return the time per token at a length from those at some lengths.

    Between those lengths, and beyond the last one, it is linear in the length, as the attention is.
    Below the first one, it is that of the first one.
    """
    points = sorted(points)
    if length <= points[0][0]:
        return points[0][1]
    for (start, start_seconds), (end, end_seconds) in pairwise(points):
        slope = (end_seconds - start_seconds) / (end - start)
        seconds = start_seconds + slope * (length - start)
        if length <= end:
            break
    return seconds


#: Attribute of a cost by header of its column.
_QUANTITIES = {
    "V100 hours": "v100_hours",
    "hours": "hours",
    "H200 hours": "h200_hours",
    "evaluation": "evaluation_hours",
    "checkpoints (GB)": "checkpoint_gb",
}


def run_cost_table(costs: Sequence[RunCost]) -> str:
    """Format the costs of runs and their totals in Markdown; a sum of unknown parts is unknown."""
    rows = []
    for cost in costs:
        values = [_number(getattr(cost, quantity)) for quantity in _QUANTITIES.values()]
        rows.append([cost.name, str(cost.gpus or "CPU"), *values])
    sums = []
    for quantity in _QUANTITIES.values():
        sums.append(_number(total(getattr(cost, quantity) for cost in costs)))
    rows.append(["total", "", *sums])
    return f"{markdown.table(['run', 'GPUs', *_QUANTITIES], rows)}\n{BASIS}"


def _number(value: float | None) -> str:
    """Format a number, or a dash if it is unknown."""
    if value is None:
        return markdown.NOTHING
    return f"{value:,.0f}"


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum, or None if a value is unknown."""
    known = list(values)
    return None if None in known else math.fsum(value or 0 for value in known)
