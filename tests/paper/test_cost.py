"""Estimates of GPU hours and disk space in a dry run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from results_documents import cells_of

from alibi_fairseq.cli import main
from alibi_fairseq.paper.cost import (
    RunCost,
    evaluation_hours,
    h200_training_hours,
    run_cost,
    run_cost_table,
)
from alibi_fairseq.paper.recipe import CONFIGS, RECIPES
from alibi_fairseq.paper.trainings import trainings_for


def test_partial_run_costs_its_fraction():
    recipe = RECIPES["cc100-roberta/alibi-512"]
    whole = run_cost(recipe, recipe.updates, gpus=128, checkpoints=2)
    half = run_cost(recipe, recipe.updates // 2, gpus=128, checkpoints=2)
    assert half.v100_hours == whole.v100_hours / 2


@pytest.mark.parametrize(
    ("path", "gigabytes"),
    [
        # 246,933,504 parameters with one number of nag each, in 4 bytes
        ("wikitext-103/alibi-512", 1.975),
        # 1,361,901,568 parameters with two numbers of Adam each, in 4 bytes
        ("cc100-roberta/alibi-512", 16.343),
    ],
)
def test_checkpoints_have_weights_and_optimizer_state(path, gigabytes):
    recipe = RECIPES[path]
    cost = run_cost(recipe, recipe.updates, gpus=8, checkpoints=1)
    assert cost.checkpoint_gb == pytest.approx(gigabytes, abs=0.001)


def test_unknown_cost_makes_total_unknown():
    known = RunCost("a", 8, 100.0, 2.0, evaluation_hours=1.0, h200_hours=20.0)
    unknown = RunCost("b", 0, None, 3.0, evaluation_hours=6.0)
    rows = cells_of(run_cost_table([known, unknown]))
    assert rows[1] == ["a", "8", "100", "12", "20", "1", "2"]
    assert rows[2] == ["b", "CPU", "–", "–", "–", "6", "3"]
    assert rows[3] == ["total", "", "–", "–", "–", "7", "5"]


def test_h200_hours_follow_from_measured_steps():
    """Whole passes of 9,216 tokens take 78.8 ms at 512 tokens and 98.1 ms at 3,072."""
    short = RECIPES["wikitext-103/alibi-512"]
    assert h200_training_hours(short, short.updates) == pytest.approx(286_000 * 8 * 0.0788 / 3600)
    between = RECIPES["wikitext-103/alibi-1024"]
    milliseconds = 78.8 + (98.1 - 78.8) * (1024 - 512) / (3072 - 512)
    hours = 286_000 * 8 * milliseconds / 1000 / 3600
    assert h200_training_hours(between, between.updates) == pytest.approx(hours)
    large = RECIPES["cc100-roberta/alibi-512"]
    passes = 50_000 * 2_097_152 / 9216
    hours = passes * 0.0788 / 3600 * 1_361_901_568 / 246_933_504
    assert h200_training_hours(large, large.updates) == pytest.approx(hours)
    assert h200_training_hours(RECIPES["wikitext-103/t5-512"], 100) is None


def hours_range(hours: list[float | None]) -> str:
    """Return the least and the largest known number of hours, as in ``187 to 1,362``."""
    known = [number for number in hours if number is not None]
    return f"{min(known):,.0f} to {max(known):,.0f}"


def test_page_of_recipes_has_these_hours():
    page = (CONFIGS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[([\w-]+)\]\(.+\.csv\) \|.*\| (.+) \| (.+) \|$", page, re.M)
    assert {folder for folder, *_ in rows} == {recipe.folder for recipe in RECIPES.values()}
    for folder, v100_hours, h200_hours in rows:
        recipes = [recipe for recipe in RECIPES.values() if recipe.folder == folder]
        costs = [run_cost(recipe, recipe.updates, 8, 2) for recipe in recipes]
        assert v100_hours == hours_range([cost.v100_hours for cost in costs])
        assert h200_hours == hours_range([cost.h200_hours for cost in costs])


def test_hours_of_evaluations_follow_from_table_1():
    """Table 13 scores each of 217,646 tokens in a window of its own."""
    trainings = {training.recipe.train_length: training for training in trainings_for(("table13",))}
    (longest,) = trainings[3072].evaluations
    seconds = (217_646 - 3071) * 3072 / 42_400  # words per second of Table 1
    assert evaluation_hours(longest) == pytest.approx(seconds / 3600)

    between = replace(longest, lengths=(2560,))  # three quarters of the way from 1,024 to 3,072
    seconds_per_token = 0.25 / 77_800 + 0.75 / 42_400
    expected = (217_646 - 2559) * 2560 * seconds_per_token / 3600
    assert evaluation_hours(between) == pytest.approx(expected)

    nonoverlapping = replace(longest, stride="full")
    assert evaluation_hours(nonoverlapping) == pytest.approx(71 * 3072 / 42_400 / 3600)
    (books,) = trainings_for(("table08",))[0].evaluations
    assert evaluation_hours(books) is None


def test_dry_run_estimates_costs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "table8", "--dry-run", "--gpus", "4"]) == 0
    text = capsys.readouterr().out
    rows = {row[0]: row[1:] for row in cells_of(text)}
    assert rows["bookcorpus/alibi-512"][:3] == ["4", "405", "101"]
    total = 0
    for name, row in rows.items():
        if name.startswith("bookcorpus"):
            total += int(row[1])
    assert rows["total"][1] == f"{total:,}"
    # The last and the best checkpoint, and the newest one that was saved within an epoch.
    one = run_cost(RECIPES["bookcorpus/alibi-512"], 1, gpus=4, checkpoints=1).checkpoint_gb
    assert rows["bookcorpus/alibi-512"][5] == f"{3 * one:,.0f}"
    assert "Estimates." in text
    assert "A training that was stopped counts as a whole." in text
    assert main(["reproduce", "table8", "--dry-run", "--scale", "mini"]) == 0
    assert "The time at the scale 'mini' is unknown." in capsys.readouterr().out
