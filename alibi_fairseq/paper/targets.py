"""The paper's tables and figures as the evaluations that fill them, read from ``results/paper``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from ..results.points import Point
from . import published
from .recipe import RECIPES, Recipe, recipe_name

#: Every table or figure whose perplexities one can train for, best first for the head of a file.
PERPLEXITY_ITEMS = (
    *("table05", "table08", "table12", "table11", "table06", "table07", "table09", "table10"),
    *("table02", "table03", "table04", "table13", "table14", "table15"),
    *("figure08", "figure06"),
)

#: Figure 5 draws curves. Validations of a run are at its own length, so where the figure evaluates
#: at another one, checkpoints are kept and evaluated after these updates: five, as in section 4.2.
CURVE_UPDATES = (10_000, 20_000, 30_000, 40_000, 50_000)


@dataclass(frozen=True)
class Evaluation:
    """One trained model evaluated at some lengths.

    Attributes:
        recipe: the training run.
        lengths: tokens per window.
        stride: tokens scored per window; None means non-overlapping windows.
        subsets: ``valid`` and perhaps ``test``.
        updates: take the model as it was after so many updates.
    """

    recipe: Recipe
    lengths: tuple[int, ...]
    stride: int | None
    subsets: tuple[str, ...]
    updates: int


@cache
def evaluations(item: str) -> tuple[Evaluation, ...]:
    """What to evaluate for a table or figure, in the paper's order.

    Args:
        item: as in ``results/paper/index.csv``, e.g. ``table05``.
    """
    groups: dict[tuple, dict[str, dict]] = defaultdict(lambda: {"lengths": {}, "subsets": {}})
    for point in published.points(item):
        recipe = recipe_of(item, point)
        stride = None if point.stride == point.length else point.stride
        group = groups[recipe.path, point.updates or recipe.updates, stride]
        group["lengths"][point.length] = None
        group["subsets"][point.subset] = None
    return tuple(
        Evaluation(RECIPES[path], tuple(g["lengths"]), stride, tuple(g["subsets"]), updates)
        for (path, updates, stride), g in groups.items()
    )


def curve_evaluations() -> tuple[Evaluation, ...]:
    """What Figure 5 needs beyond the trainings' own validations."""
    return tuple(
        Evaluation(recipe_of("figure05", point), (point.length,), None, ("valid",), updates)
        for point in published.points("figure05")
        if point.length != point.train_length
        for updates in CURVE_UPDATES
    )


def recipe_of(item: str, point: Point) -> Recipe:
    corpus = published.about(item)["corpus"]
    return RECIPES[f"{corpus}/{recipe_name(point.position_method, point.train_length)}"]
