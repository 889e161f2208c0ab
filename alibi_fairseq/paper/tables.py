"""The trainings and evaluations that a table or figure needs, from the paper's data and recipes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import BadInput
from . import published
from .recipe import Recipe
from .targets import PERPLEXITY_ITEMS, Evaluation, curve_evaluations, evaluations

#: Figures that draw what tables hold: those tables, and the methods that are drawn (None: all).
DRAWN: dict[str, tuple[tuple[str, ...], set[str] | None]] = {
    "figure01": (("table02", "table03"), None),
    "figure04": (("table05",), {"alibi", "sinusoidal"}),
    "figure05": (("table11", "table12"), None),
    "figure09": (("table08",), None),
    "figure11": (("table13", "table15"), None),
}
#: Drawings without data.
DIAGRAMS = {"figure03": "how ALiBi biases the scores", "figure10": "sliding-window inference"}
#: Speed and memory of models as initialised: measured in minutes, by the benchmarks.
SPEED = ("table01", "figure02", "figure07")
SPEED_COMMAND = "python -m benchmarks.methods"
ITEMS = tuple(sorted((*PERPLEXITY_ITEMS, *DRAWN), key=lambda item: (item[0] == "f", item)))


@dataclass(frozen=True)
class Measurement:
    """One sweep: a checkpoint by its updates, a split, and lengths at one stride.

    A stride of None means non-overlapping windows.
    """

    updates: int
    subset: str
    stride: int | None
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Training:
    """A training run and its evaluations."""

    recipe: Recipe
    measurements: tuple[Measurement, ...]

    @property
    def stops(self) -> tuple[int, ...]:
        """Updates after which a checkpoint is kept, ascending; the last one ends the run."""
        last = max(measurement.updates for measurement in self.measurements)
        return tuple(updates for updates in ages(self.recipe) if updates <= last)


def find_items(name: str) -> tuple[str, ...]:
    """``table5``, ``figure1`` or ``all`` as items of the paper, e.g. ``("table05",)``.

    Raises:
        BadInput: there is no such table or figure, or it needs no training.
    """
    if name == "all":
        return ITEMS
    found = re.fullmatch(r"(table|figure)0*(\d+)", name.lower())
    item = f"{found[1]}{int(found[2]):02d}" if found else ""
    if item in DIAGRAMS:
        raise BadInput(
            f"Figure {int(item[-2:])} is a diagram of {DIAGRAMS[item]} and holds no data."
        )
    if item in SPEED:
        raise BadInput(
            f"{item_name(item)} is about speed and memory, not about trained models; measure it with "
            f"`{SPEED_COMMAND}` and show it with `alibi-fairseq report`."
        )
    if item not in ITEMS:
        known = ", ".join(map(item_name, ITEMS))
        raise BadInput(f"There is nothing to train for '{name}'; choose from {known}, all.")
    return (item,)


def item_name(item: str) -> str:
    """``table05`` → ``table5``: as on the command line."""
    return re.sub(r"(?<=\D)0", "", item)


def paper_name(item: str) -> str:
    """``table05`` → ``Table 5``."""
    return f"{item[:-2].capitalize()} {int(item[-2:])}"


def asked_for(item: str) -> list[Evaluation]:
    """The evaluations of a table or figure."""
    items, methods = DRAWN.get(item, ((item,), None))
    found = [
        evaluation
        for source in items
        for evaluation in evaluations(source)
        if methods is None or evaluation.recipe.position_method in methods
    ]
    return [*found, *curve_evaluations()] if item == "figure05" else found


def trainings_for(items: tuple[str, ...]) -> list[Training]:
    """The trainings that the items need, each once, with all its evaluations."""
    lengths: dict[str, dict[tuple[int, str, int | None], dict[int, None]]] = {}
    recipes: dict[str, Recipe] = {}
    for item in items:
        for evaluation in asked_for(item):
            recipes[evaluation.recipe.path] = evaluation.recipe
            of_run = lengths.setdefault(evaluation.recipe.path, {})
            for subset in evaluation.subsets:
                case = (evaluation.updates, subset, evaluation.stride)
                of_run.setdefault(case, {}).update(dict.fromkeys(evaluation.lengths))
    return [
        Training(
            recipes[path],
            tuple(Measurement(*case, tuple(sorted(some))) for case, some in cases.items()),
        )
        for path, cases in lengths.items()
    ]


def ages(recipe: Recipe) -> tuple[int, ...]:
    """All numbers of updates at which the paper evaluates this run, ascending.

    A run keeps a checkpoint at each of them, whatever was requested: it passes them only once.
    """
    asked = (evaluation for item in PERPLEXITY_ITEMS for evaluation in evaluations(item))
    found = {
        evaluation.updates
        for evaluation in (*asked, *curve_evaluations())
        if evaluation.recipe is recipe
    }
    return tuple(sorted(found))


def corpora_of(trainings: list[Training]) -> list[str]:
    """The corpora that trainings need, in order."""
    return list(dict.fromkeys(each.recipe.corpus for each in trainings))


def title(item: str) -> str:
    """``Table 5. wikitext-103: Training length by evaluation length, …``."""
    if item in DRAWN and item not in {row["item"] for row in published.rows("index")}:
        number = int(item.removeprefix("figure"))
        tables = ", ".join(published.about(source)["name"] for source in DRAWN[item][0])
        return f"Figure {number} ({tables})"
    about = published.about(item)
    return f"{about['name']}. {about['corpus']}: {about['content']}"
