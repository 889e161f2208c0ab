"""Trainings and evaluations of the paper's tables and figures, derived from ``results/paper``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from ..errors import UserInputError
from ..evaluation.config import SweepConfig
from ..results.measurements import Measurement
from . import published
from .recipe import RECIPES, Recipe

#: Sources of figures that only draw numbers of tables: those tables, and the drawn position methods
#: (None: all).
DRAWN: dict[str, tuple[tuple[str, ...], set[str] | None]] = {
    "figure01": (("table02", "table03"), None),
    "figure04": (("table05",), {"alibi", "sinusoidal"}),
    "figure05": (("table11", "table12"), None),
    "figure09": (("table08",), None),
    "figure11": (("table13", "table15"), None),
}
_SPEED = (
    "It shows speed and memory of untrained models of the paper's size. Run "
    "`python -m benchmarks.methods` on a GPU to measure them."
)
#: Items without trained models, and the reason.
UNTRAINED = {
    "table01": _SPEED,
    "figure02": _SPEED,
    "figure03": "It is a diagram of how ALiBi biases the scores and contains no data.",
    "figure07": _SPEED,
    "figure10": "It is a diagram of sliding-window inference and contains no data.",
}
_NUMBERED = (
    *(f"table{number:02d}" for number in range(1, 16)),
    *(f"figure{number:02d}" for number in range(1, 12)),
)
#: Items with trained models, in the paper's order.
ITEMS = tuple(item for item in _NUMBERED if item not in UNTRAINED)
#: Update counts of the checkpoints behind Figure 5's curves. Validations during training have the
#: training length, so where the figure evaluates at another length, these checkpoints are kept and
#: evaluated: five, as in section 4.2.
CURVE_UPDATES = (10_000, 20_000, 30_000, 40_000, 50_000)

#: Update count, splits, and strides of an evaluation. A stride of None stands for non-overlapping
#: windows at any length.
Case = tuple[int, tuple[str, ...], tuple[int | None, ...]]


@dataclass(frozen=True)
class PaperEvaluation:
    """Evaluation of a recipe's model after some updates on a split, with one stride."""

    recipe: Recipe
    updates: int
    config: SweepConfig

    @property
    def subset(self) -> str:
        """The split."""
        return self.config.subsets[0]


@dataclass(frozen=True)
class PaperTraining:
    """Training run with its evaluations."""

    recipe: Recipe
    evaluations: tuple[PaperEvaluation, ...]

    @property
    def stops(self) -> tuple[int, ...]:
        """Update counts of the kept checkpoints, ascending; the last one ends the run."""
        last = max(evaluation.updates for evaluation in self.evaluations)
        return tuple(updates for updates in checkpoint_updates(self.recipe) if updates <= last)


def find_items(name: str) -> tuple[str, ...]:
    """Parse ``table5``, ``figure1``, or ``all`` into items of the paper, e.g. ``("table05",)``."""
    if name == "all":
        return ITEMS
    item = ""
    match = re.fullmatch(r"(table|figure)0*(\d+)", name.lower())
    if match:
        kind, number = match.groups()
        item = f"{kind}{int(number):02d}"
    if item in ITEMS:
        return (item,)
    if item in UNTRAINED:
        raise UserInputError(f"{paper_name(item)} requires no training. {UNTRAINED[item]}")
    choices = ", ".join(_option_name(choice) for choice in ITEMS)
    raise UserInputError(f"'{name}' is not a trained table or figure; choose from {choices}, all.")


def _option_name(item: str) -> str:
    """Return the name of an item on the command line: ``table05`` → ``table5``."""
    return f"{item[:-2]}{int(item[-2:])}"


def paper_name(item: str) -> str:
    """Return the name of an item in the paper: ``table05`` → ``Table 5``."""
    return f"{item[:-2].capitalize()} {int(item[-2:])}"


def title(item: str) -> str:
    """Return name, corpus, and content of an item, or the tables that a figure draws."""
    indexed = {row["item"] for row in published.rows("index")}
    if item in DRAWN and item not in indexed:
        sources, _ = DRAWN[item]
        names = ", ".join(published.about(source)["name"] for source in sources)
        return f"{paper_name(item)} ({names})"
    about = published.about(item)
    return f"{about['name']}. {about['corpus']}: {about['content']}"


def recipes_and_measurements(item: str) -> list[tuple[Recipe, Measurement]]:
    """Return the perplexities of a table or figure, each with the recipe of its model."""
    sources, methods = DRAWN.get(item, ((item,), None))
    measurements = []
    for source in sources:
        for measurement in published.measurements(source):
            if methods is None or measurement.position_method in methods:
                measurements.append((recipe_of(source, measurement), measurement))
    return measurements


def recipe_of(item: str, measurement: Measurement) -> Recipe:
    """Return the recipe of a printed measurement's model."""
    corpus = published.about(item)["corpus"]
    method = measurement.position_method.replace("_", "-")
    return RECIPES[f"{corpus}/{method}-{measurement.train_length}"]


def _paper_evaluation(recipe: Recipe, case: Case, lengths: Iterable[int]) -> PaperEvaluation:
    """Create the evaluation of a case at several lengths."""
    updates, subsets, strides = case
    config = SweepConfig(lengths=tuple(lengths), strides=strides, subsets=subsets)
    return PaperEvaluation(recipe, updates, config)


@cache
def evaluations(item: str) -> tuple[PaperEvaluation, ...]:
    """Return the evaluations of a table or figure, in the paper's order."""
    lengths_by_case: dict[tuple[str, Case], list[int]] = defaultdict(list)
    for recipe, measurement in recipes_and_measurements(item):
        stride = None if measurement.nonoverlapping else measurement.stride
        case: Case = (measurement.updates or recipe.updates, (measurement.subset,), (stride,))
        lengths = lengths_by_case[recipe.path, case]
        if measurement.length not in lengths:
            lengths.append(measurement.length)
    item_evaluations = []
    for (path, case), lengths in lengths_by_case.items():
        item_evaluations.append(_paper_evaluation(RECIPES[path], case, lengths))
    if item == "figure05":
        item_evaluations += curve_evaluations()
    return tuple(item_evaluations)


def curve_evaluations() -> tuple[PaperEvaluation, ...]:
    """Return the evaluations of Figure 5's curves at other lengths than the training length."""
    curves = []
    for measurement in published.measurements("figure05"):
        if measurement.length == measurement.train_length:
            continue
        recipe = recipe_of("figure05", measurement)
        config = SweepConfig(lengths=(measurement.length,))
        for updates in CURVE_UPDATES:
            curves.append(PaperEvaluation(recipe, updates, config))
    return tuple(curves)


def trainings_for(items: tuple[str, ...]) -> list[PaperTraining]:
    """Return the trainings that the items need, each once, with all its evaluations."""
    cases_by_recipe: dict[str, dict[Case, set[int]]] = {}
    for item in items:
        for evaluation in evaluations(item):
            config = evaluation.config
            case = (evaluation.updates, config.subsets, config.strides)
            lengths_by_case = cases_by_recipe.setdefault(evaluation.recipe.path, {})
            lengths_by_case.setdefault(case, set()).update(config.lengths)
    trainings = []
    for path, lengths_by_case in cases_by_recipe.items():
        recipe = RECIPES[path]
        merged = []
        for case, lengths in lengths_by_case.items():
            merged.append(_paper_evaluation(recipe, case, sorted(lengths)))
        trainings.append(PaperTraining(recipe, tuple(merged)))
    return trainings


def checkpoint_updates(recipe: Recipe) -> tuple[int, ...]:
    """Return the update counts at which the paper evaluates a run, ascending.

    A run keeps a checkpoint at each of them, whatever items are requested, because it reaches each
    only once.
    """
    updates = set()
    for item in ITEMS:
        for evaluation in evaluations(item):
            if evaluation.recipe is recipe:
                updates.add(evaluation.updates)
    return tuple(sorted(updates))
