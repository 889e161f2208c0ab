"""Trainings and evaluations that tables and figures of the paper need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ..evaluation.config import SweepConfig
from .items import items, trained_items
from .published import PrintedMeasurement
from .recipe import RECIPES, Recipe, recipe_name


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


def recipe_of(measurement: PrintedMeasurement) -> Recipe:
    """Return the recipe of a printed measurement's model."""
    assert measurement.method is not None, "other authors have no recipe"
    path = recipe_name(measurement.corpus, measurement.method, measurement.train_length)
    return RECIPES[path]


@cache
def evaluations_of(item: str) -> tuple[PaperEvaluation, ...]:
    """Return the evaluations of a table or figure, in the paper's order."""
    lengths_by_key: dict[SweepKey, list[int]] = defaultdict(list)
    for measurement in items()[item].measurements:
        recipe = recipe_of(measurement)
        updates = measurement.updates or recipe.updates
        stride = None if measurement.nonoverlapping else measurement.stride
        lengths = lengths_by_key[SweepKey(recipe.path, updates, measurement.subset, stride)]
        if measurement.length not in lengths:
            lengths.append(measurement.length)
    return tuple(key.with_lengths(lengths) for key, lengths in lengths_by_key.items())


def trainings_for(keys: Iterable[str]) -> list[PaperTraining]:
    """Return the trainings that items need, each once, with all its evaluations."""
    lengths_by_key: dict[SweepKey, set[int]] = defaultdict(set)
    for item in keys:
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
