"""Trainings and evaluations of the paper's tables and figures, derived from ``results/paper``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ..errors import UserInputError
from ..evaluation.config import SweepConfig
from . import published
from .published import PrintedMeasurement
from .recipe import RECIPES, Recipe, recipe_name


class Source(NamedTuple):
    """Numbers that a table or figure shows.

    Attributes:
        items: tables, or the item itself, with these numbers; none for a diagram.
        methods: names in tables of the position methods that it shows (default: all).
        content: what a diagram shows.
    """

    items: tuple[str, ...]
    methods: tuple[str, ...] = ()
    content: str = ""


#: Why an item whose numbers are no perplexities has no runs.
_SPEED = (
    "It shows speed and memory of untrained models of the paper's size. Run "
    "`python -m benchmarks.methods` on a GPU to measure them, and pass its results to "
    "`alibi-fairseq report`."
)
#: Update counts of the checkpoints behind Figure 5's curves. Validations during training have the
#: training length, so where the figure evaluates at another length, these checkpoints are kept and
#: evaluated: five, as in section 4.2.
CURVE_UPDATES = (10_000, 20_000, 30_000, 40_000, 50_000)


class SweepKey(NamedTuple):
    """Settings of an evaluation sweep without its lengths.

    Attributes:
        recipe: path of the model's recipe.
        updates: update count of the checkpoint.
        subset: split.
        stride: stride in tokens, or None for non-overlapping windows at any length.
    """

    recipe: str
    updates: int
    subset: str
    stride: int | None

    def with_lengths(self, lengths: Iterable[int]) -> PaperEvaluation:
        """Return the evaluation with these settings at several lengths."""
        recipe = RECIPES[self.recipe]
        return PaperEvaluation(recipe, self.updates, self.subset, self.stride, tuple(lengths))


@dataclass(frozen=True)
class PaperEvaluation:
    """Evaluation sweep of a recipe's model after some updates, on one split with one stride.

    Attributes:
        recipe: recipe of the model.
        updates: update count of the checkpoint.
        subset: split.
        stride: stride in tokens, or None for non-overlapping windows at any length.
        lengths: evaluation lengths.
    """

    recipe: Recipe
    updates: int
    subset: str
    stride: int | None
    lengths: tuple[int, ...]

    @property
    def config(self) -> SweepConfig:
        """Settings of ``alibi-fairseq eval``."""
        return SweepConfig(lengths=self.lengths, strides=(self.stride,), subsets=(self.subset,))

    @property
    def key(self) -> SweepKey:
        """Settings without the lengths. Evaluations with the same key can be merged."""
        return SweepKey(self.recipe.path, self.updates, self.subset, self.stride)


@dataclass(frozen=True)
class PaperTraining:
    """Training run with its evaluations."""

    recipe: Recipe
    evaluations: tuple[PaperEvaluation, ...]

    @property
    def update_counts(self) -> tuple[int, ...]:
        """Update counts at which a checkpoint is kept, ascending. The last one ends the run."""
        last = max(evaluation.updates for evaluation in self.evaluations)
        return tuple(updates for updates in evaluated_update_counts(self.recipe) if updates <= last)


@cache
def sources() -> dict[str, Source]:
    """Return all tables and figures in the paper's order, with the numbers that they show.

    They are the rows of ``index.csv``, and those of ``drawn.csv``, which draw numbers of tables.
    """
    by_item = {row["item"]: Source((row["item"],)) for row in published.rows("index")}
    for row in published.rows("drawn"):
        items = row["sources"].split() if row["sources"] else ()
        methods = row["methods"].split("/") if row["methods"] else ()
        by_item[row["item"]] = Source(tuple(items), tuple(methods), row["content"] or "")
    # Tables first, each kind by its number.
    order = sorted(by_item, key=lambda item: (item.startswith("figure"), item))
    return {item: by_item[item] for item in order}


@cache
def trained_items() -> tuple[str, ...]:
    """Return the items with perplexities of trained models, in the paper's order."""
    return tuple(item for item in sources() if _has_perplexities(item))


def _has_perplexities(item: str) -> bool:
    """Return True if an item shows perplexities."""
    return any(published.measurements(source) for source in sources()[item].items)


def find_items(name: str) -> tuple[str, ...]:
    """Parse ``table5``, ``figure1``, or ``all`` into items of the paper, e.g. ``("table05",)``."""
    if name == "all":
        return trained_items()
    item = ""
    match = re.fullmatch(r"(table|figure)0*(\d+)", name.lower())
    if match:
        kind, number = match.groups()
        item = f"{kind}{int(number):02d}"
    if item in trained_items():
        return (item,)
    if item in sources():
        reason = sources()[item].content or _SPEED
        raise UserInputError(f"{paper_name(item)} requires no training. {reason}")
    choices = ", ".join(_option_name(choice) for choice in trained_items())
    raise UserInputError(
        f"'{name}' is not a trained table or figure. Choose from {choices}, or all."
    )


def _option_name(item: str) -> str:
    """Return the name of an item on the command line: ``table05`` → ``table5``."""
    return f"{item[:-2]}{int(item[-2:])}"


def paper_name(item: str) -> str:
    """Return the name of an item in the paper: ``table05`` → ``Table 5``."""
    return f"{item[:-2].capitalize()} {int(item[-2:])}"


def title_of(item: str) -> str:
    """Return name, corpus, and content of an item, or the tables that a figure draws."""
    indexed = {row["item"] for row in published.rows("index")}
    if item not in indexed:
        names = [published.index_row(source)["name"] for source in sources()[item].items]
        return f"{paper_name(item)} ({', '.join(names)})"
    row = published.index_row(item)
    return f"{row['name']}. {row['corpus']}: {row['content']}"


def recipes_and_measurements(item: str) -> Sequence[tuple[Recipe, PrintedMeasurement]]:
    """Return the perplexities of a table or figure, each with the recipe of its model."""
    source = sources()[item]
    measurements = []
    for source_item in source.items:
        for measurement in published.measurements(source_item):
            if not source.methods or measurement.method_name in source.methods:
                measurements.append((recipe_of(source_item, measurement), measurement))
    return measurements


def recipe_of(item: str, measurement: PrintedMeasurement) -> Recipe:
    """Return the recipe of a printed measurement's model."""
    corpus = published.corpus_of(item)
    return RECIPES[recipe_name(corpus, measurement.method, measurement.train_length)]


@cache
def evaluations_of(item: str) -> tuple[PaperEvaluation, ...]:
    """Return the evaluations of a table or figure, in the paper's order."""
    lengths_by_key: dict[SweepKey, list[int]] = defaultdict(list)
    for recipe, measurement in recipes_and_measurements(item):
        updates = measurement.updates or recipe.updates
        stride = None if measurement.nonoverlapping else measurement.stride
        lengths = lengths_by_key[SweepKey(recipe.path, updates, measurement.subset, stride)]
        if measurement.length not in lengths:
            lengths.append(measurement.length)
    item_evaluations = [key.with_lengths(lengths) for key, lengths in lengths_by_key.items()]
    if item == "figure05":
        item_evaluations += curve_evaluations()
    return tuple(item_evaluations)


def curve_evaluations() -> tuple[PaperEvaluation, ...]:
    """Return the evaluations of Figure 5's curves at lengths other than the training length."""
    curves = []
    for measurement in published.measurements("figure05"):
        if measurement.length == measurement.train_length:
            continue
        recipe = recipe_of("figure05", measurement)
        for updates in CURVE_UPDATES:
            key = SweepKey(recipe.path, updates, measurement.subset, stride=None)
            curves.append(key.with_lengths([measurement.length]))
    return tuple(curves)


def trainings_for(items: tuple[str, ...]) -> list[PaperTraining]:
    """Return the trainings that the items need, each once, with all its evaluations."""
    lengths_by_key: dict[SweepKey, set[int]] = defaultdict(set)
    for item in items:
        for evaluation in evaluations_of(item):
            lengths_by_key[evaluation.key].update(evaluation.lengths)
    evaluations_by_recipe: dict[str, list[PaperEvaluation]] = defaultdict(list)
    for key, lengths in lengths_by_key.items():
        evaluations_by_recipe[key.recipe].append(key.with_lengths(sorted(lengths)))
    trainings = []
    for path, recipe_evaluations in evaluations_by_recipe.items():
        trainings.append(PaperTraining(RECIPES[path], tuple(recipe_evaluations)))
    return trainings


def evaluated_update_counts(recipe: Recipe) -> tuple[int, ...]:
    """Return the update counts at which the paper evaluates a run, ascending.

    A run keeps a checkpoint at each of them, whatever items are requested, because it reaches each
    only once.
    """
    updates = set()
    for item in trained_items():
        for evaluation in evaluations_of(item):
            if evaluation.recipe is recipe:
                updates.add(evaluation.updates)
    return tuple(sorted(updates))
