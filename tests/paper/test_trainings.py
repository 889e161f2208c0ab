"""Runs and measurements that each table and figure of the paper requires."""

from __future__ import annotations

import pytest

from alibi_fairseq.paper.items import find_items, items, trained_items
from alibi_fairseq.paper.recipe import for_80gb
from alibi_fairseq.paper.scale import SCALES
from alibi_fairseq.paper.trainings import (
    evaluated_update_counts,
    recipe_of,
    trainings_for,
)

#: Numbers of runs and perplexities in the paper, counted by hand, with out-of-memory cells.
SIZES = {
    "table02": (4, 35 * 4),
    "table03": (4, 35 * 4),
    "table04": (4, 33 * 4),
    "table05": (22, 36 + 8 + 3 + 3),
    "table06": (5, 10),
    "table07": (5, 10),
    "table08": (6, 9),
    "table09": (3, 6),
    "table10": (3, 6),
    "table11": (4, 4),
    "table12": (6, 12),
    "table13": (3, 10),
    "table14": (3, 10),
    "table15": (3, 10),
    "figure01": (8, 280),
    "figure04": (16, 36 + 8),
    "figure05": (4, 2 + 2 * 5),
    "figure06": (4, None),
    "figure08": (6, 6),
    "figure09": (6, 9),
    "figure11": (6, 20),
}


def measurements_of(trainings) -> set[tuple]:
    """Return recipe, update count, split, length, and stride of all measurements of trainings."""
    measurements = set()
    for training in trainings:
        for evaluation in training.evaluations:
            key = (training.recipe.path, evaluation.updates, evaluation.split)
            for length, stride in evaluation.config.windows():
                measurements.add((*key, length, stride))
    return measurements


def trainings_by_recipe(item: str) -> dict:
    """Return the trainings of an item by the path of their recipe."""
    return {training.recipe.path: training for training in trainings_for((item,))}


def test_runs_and_perplexities_of_each_item():
    for item, (count, perplexities) in SIZES.items():
        trainings = trainings_for((item,))
        assert len(trainings) == count, item
        assert len(trainings_by_recipe(item)) == count, item
        if perplexities is not None:
            assert len(measurements_of(trainings)) == perplexities, item


def test_every_printed_perplexity_is_measured():
    for item in SIZES:
        printed = set()
        for measurement in items()[item].measurements:
            recipe = recipe_of(measurement)
            updates = measurement.updates or recipe.updates
            evaluation = (measurement.case.split, measurement.case.length, measurement.case.stride)
            printed.add((recipe.path, updates, *evaluation))
        assert measurements_of(trainings_for((item,))) >= printed, item


def test_all_contains_each_run_once():
    trainings = trainings_for(find_items("all"))
    assert len(trainings) == 22 + 6 + 6
    all_measurements = measurements_of(trainings)
    for item in trained_items():
        assert all_measurements >= measurements_of(trainings_for((item,)))


@pytest.mark.parametrize(
    ("item", "recipe", "update_counts"),
    [
        ("table11", "cc100-roberta/sinusoidal-1024", (46_700,)),
        ("table12", "cc100-roberta/sinusoidal-1024", (46_700, 50_000)),
        ("table12", "cc100-roberta/sinusoidal-2048", (44_200, 50_000)),
        ("table05", "wikitext-103/alibi-512", (286_000,)),
        ("figure05", "cc100-roberta/alibi-1024", (10_000, 20_000, 30_000, 40_000, 50_000)),
    ],
)
def test_run_saves_paper_checkpoints_only(item, recipe, update_counts):
    assert trainings_by_recipe(item)[recipe].update_counts == list(update_counts)


def test_figure_5_checkpoints_are_evaluated_at_twice_the_length():
    training = trainings_by_recipe("figure05")["cc100-roberta/alibi-1024"]
    updates_at_2048 = set()
    for evaluation in training.evaluations:
        if 2048 in evaluation.lengths:
            updates_at_2048.add(evaluation.updates)
    assert updates_at_2048 == {10_000, 20_000, 30_000, 40_000, 50_000}


@pytest.mark.parametrize("scale", [SCALES["mini"], SCALES["smoke"]])
def test_small_scale_keeps_recipe_settings(scale):
    unchanged = {
        "task": ("_name", "tokens_per_sample"),
        "model": ("_name", "position_method"),
        "optimization": ("lr",),
        "optimizer": ("_name",),
        "lr_scheduler": ("_name",),
    }
    for training in trainings_for(trained_items()):
        recipe = training.recipe
        small = scale.scale_recipe(recipe)
        settings = recipe.settings()
        small_settings = small.settings()
        for group, options in unchanged.items():
            for option in options:
                assert small_settings[group][option] == settings[group][option]
        criterion = settings["criterion"]["_name"]
        assert small_settings["criterion"]["_name"] == f"chunked_{criterion}"
        on_80gb = scale.scale_recipe(for_80gb(recipe)).settings()
        assert on_80gb["criterion"] == small_settings["criterion"]
        assert small_settings["optimization"]["max_update"] == scale.updates
        assert small.batch.tokens_per_update <= 9216
        checkpoints = []
        for updates in evaluated_update_counts(recipe):
            checkpoints.append(scale.scale_updates(recipe, updates))
        assert checkpoints == sorted(set(checkpoints))
        assert checkpoints[-1] == scale.updates
