"""Trainings and evaluations that tables and figures of the paper need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from ..evaluation.config import SweepConfig
from ..evaluation.option_types import Stride
from .items import items, trained_items
from .published import PrintedMeasurement
from .recipe import RECIPES, Recipe, recipe_path


@dataclass(frozen=True)
class PaperEvaluation:
    """Evaluation of a recipe's model after some updates, on one split with one stride.

    Attributes:
        recipe_path: path of the model's recipe.
        updates: update count of the checkpoint.
        split: name of the split.
        stride: stride in tokens, or ``full`` for windows that do not overlap, at any length.
        lengths: evaluation lengths.
    """

    recipe_path: str
    updates: int
    split: str
    stride: Stride
    lengths: tuple[int, ...] = ()

    @property
    def recipe(self) -> Recipe:
        """Recipe of the model."""
        return RECIPES[self.recipe_path]

    @property
    def config(self) -> SweepConfig:
        """Settings of ``alibi-fairseq eval``."""
        return SweepConfig(lengths=self.lengths, strides=(self.stride,), splits=(self.split,))


@dataclass(frozen=True)
class PaperTraining:
    """Training run with its evaluations."""

    recipe: Recipe
    evaluations: Sequence[PaperEvaluation]

    @property
    def update_counts(self) -> list[int]:
        """Update counts at which a checkpoint is kept, ascending. The last one ends the run."""
        last = max(evaluation.updates for evaluation in self.evaluations)
        return [updates for updates in evaluated_update_counts(self.recipe) if updates <= last]


def recipe_of(measurement: PrintedMeasurement) -> Recipe:
    """Return the recipe of a printed measurement's model."""
    assert measurement.method is not None, "other authors have no recipe"
    path = recipe_path(measurement.corpus, measurement.method, measurement.train_length)
    return RECIPES[path]


@cache
def plan_evaluations(keys: tuple[str, ...]) -> tuple[PaperEvaluation, ...]:
    """Return the evaluations that items need, each once, with ascending lengths."""
    lengths: dict[PaperEvaluation, set[int]] = defaultdict(set)
    for key in keys:
        for measurement in items()[key].measurements:
            recipe = recipe_of(measurement)
            updates = measurement.updates or recipe.updates
            case = measurement.case
            stride: Stride = "full" if case.nonoverlapping else case.stride
            evaluation = PaperEvaluation(recipe.path, updates, case.split, stride)
            lengths[evaluation].add(case.length)
    evaluations = []
    for evaluation, needed in lengths.items():
        evaluations.append(replace(evaluation, lengths=tuple(sorted(needed))))
    return tuple(evaluations)


def trainings_for(keys: tuple[str, ...]) -> list[PaperTraining]:
    """Return the trainings that items need, each once, with all its evaluations."""
    by_recipe: dict[str, list[PaperEvaluation]] = defaultdict(list)
    for evaluation in plan_evaluations(keys):
        by_recipe[evaluation.recipe_path].append(evaluation)
    return [PaperTraining(RECIPES[path], members) for path, members in by_recipe.items()]


def evaluated_update_counts(recipe: Recipe) -> list[int]:
    """Return the update counts at which the paper evaluates a run, ascending.

    A run keeps a checkpoint at each of them, whatever items are requested, because it reaches each
    only once.
    """
    of_all = plan_evaluations(trained_items())
    return sorted({each.updates for each in of_all if each.recipe_path == recipe.path})
