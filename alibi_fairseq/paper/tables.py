"""The trainings and evaluations that fill the paper's tables and figures, read from ``results/paper``."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from ..errors import UserInputError
from ..results.measurements import Measurement
from . import published
from .recipe import RECIPES, Recipe

#: Figures that draw what tables hold: those tables, and the methods that are drawn (None: all).
DRAWN: dict[str, tuple[tuple[str, ...], set[str] | None]] = {
    "figure01": (("table02", "table03"), None),
    "figure04": (("table05",), {"alibi", "sinusoidal"}),
    "figure05": (("table11", "table12"), None),
    "figure09": (("table08",), None),
    "figure11": (("table13", "table15"), None),
}
_SPEED = (
    "speed and memory of models of the paper's size, untrained; `python -m benchmarks.methods` measures "
    "them on a GPU."
)
#: What cannot be trained for, and why.
UNTRAINED = {
    **dict.fromkeys(("table01", "figure02", "figure07"), _SPEED),
    "figure03": "a diagram of how ALiBi biases the scores, which holds no data.",
    "figure10": "a diagram of sliding-window inference, which holds no data.",
}
#: What can, of all that the paper numbers.
ITEMS = tuple(
    item
    for kind, last in (("table", 15), ("figure", 11))
    for item in (f"{kind}{number:02d}" for number in range(1, last + 1))
    if item not in UNTRAINED
)
#: Figure 5 draws curves. Validations of a run are at its own length, so where the figure evaluates
#: at another one, checkpoints are kept and evaluated after these updates: five, as in section 4.2.
CURVE_UPDATES = (10_000, 20_000, 30_000, 40_000, 50_000)

#: Updates, split and stride of an evaluation.
Case = tuple[int, str, int | None]


@dataclass(frozen=True)
class PaperEvaluation:
    """A recipe's model after some updates on a split; ``stride`` None: non-overlapping windows."""

    recipe: Recipe
    updates: int
    subset: str
    stride: int | None
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class PaperTraining:
    """A training run and its evaluations."""

    recipe: Recipe
    evaluations: tuple[PaperEvaluation, ...]

    @property
    def stops(self) -> tuple[int, ...]:
        """Updates after which a checkpoint is kept, ascending; the last one ends the run."""
        last = max(evaluation.updates for evaluation in self.evaluations)
        return tuple(updates for updates in checkpoint_updates(self.recipe) if updates <= last)


def find_items(name: str) -> tuple[str, ...]:
    """``table5``, ``figure1`` or ``all`` as items of the paper, e.g. ``("table05",)``."""
    if name == "all":
        return ITEMS
    found = re.fullmatch(r"(table|figure)0*(\d+)", name.lower())
    item = f"{found[1]}{int(found[2]):02d}" if found else ""
    if item in ITEMS:
        return (item,)
    if item in UNTRAINED:
        raise UserInputError(f"{paper_name(item)}: {UNTRAINED[item]}")
    known = ", ".join(re.sub(r"(?<=\D)0", "", each) for each in ITEMS)
    raise UserInputError(f"There is nothing to train for '{name}'; choose from {known}, all.")


def paper_name(item: str) -> str:
    """``table05`` → ``Table 5``."""
    return f"{item[:-2].capitalize()} {int(item[-2:])}"


def title(item: str) -> str:
    """``Table 5. wikitext-103: PaperTraining length by evaluation length, …``."""
    if item in DRAWN and item not in {row["item"] for row in published.rows("index")}:
        tables = ", ".join(published.about(source)["name"] for source in DRAWN[item][0])
        return f"{paper_name(item)} ({tables})"
    about = published.about(item)
    return f"{about['name']}. {about['corpus']}: {about['content']}"


def points(item: str) -> list[tuple[Recipe, Measurement]]:
    """The perplexities that a table holds or a figure draws, each with the recipe of its model."""
    sources, methods = DRAWN.get(item, ((item,), None))
    return [
        (recipe_of(source, point), point)
        for source in sources
        for point in published.points(source)
        if methods is None or point.position_method in methods
    ]


def recipe_of(item: str, point: Measurement) -> Recipe:
    corpus, method = published.about(item)["corpus"], point.position_method.replace("_", "-")
    return RECIPES[f"{corpus}/{method}-{point.train_length}"]


@cache
def evaluations(item: str) -> tuple[PaperEvaluation, ...]:
    """What to evaluate for a table or figure, in the paper's order."""
    groups: dict[tuple[str, Case], dict[int, None]] = defaultdict(dict)
    for recipe, point in points(item):
        stride = None if point.nonoverlapping else point.stride
        case = (point.updates or recipe.updates, point.subset, stride)
        groups[recipe.path, case][point.length] = None
    found = [
        PaperEvaluation(RECIPES[path], *case, tuple(some)) for (path, case), some in groups.items()
    ]
    return (*found, *(curve_evaluations() if item == "figure05" else ()))


def curve_evaluations() -> tuple[PaperEvaluation, ...]:
    """What Figure 5 needs beyond the trainings' own validations."""
    return tuple(
        PaperEvaluation(recipe_of("figure05", point), updates, "valid", None, (point.length,))
        for point in published.points("figure05")
        if point.length != point.train_length
        for updates in CURVE_UPDATES
    )


def trainings_for(items: tuple[str, ...]) -> list[PaperTraining]:
    """The trainings that the items need, each once, with all its evaluations."""
    runs: dict[str, dict[Case, set[int]]] = defaultdict(lambda: defaultdict(set))
    for item in items:
        for each in evaluations(item):
            runs[each.recipe.path][each.updates, each.subset, each.stride] |= set(each.lengths)
    trainings = []
    for path, cases in runs.items():
        recipe = RECIPES[path]
        found = (
            PaperEvaluation(recipe, *case, tuple(sorted(some))) for case, some in cases.items()
        )
        trainings.append(PaperTraining(recipe, tuple(found)))
    return trainings


def checkpoint_updates(recipe: Recipe) -> tuple[int, ...]:
    """All numbers of updates at which the paper evaluates this run, ascending.

    A run keeps a checkpoint at each of them, whatever was requested: it passes them only once.
    """
    asked = (each for item in ITEMS for each in evaluations(item))
    return tuple(sorted({each.updates for each in asked if each.recipe is recipe}))
