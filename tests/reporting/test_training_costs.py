"""Time and memory of trainings, from the records of a study's models."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from commands import ROOT
from results_documents import cells_of

from alibi_fairseq.reporting.training_costs import (
    TrainingCost,
    cost_rows,
    cost_table,
    read_training_cost,
)

CELLS = ROOT / "results" / "small_models" / "secondary" / "cells"
MODELS = ("wikipedia-alibi-512", "wikipedia-sinusoidal-512")
SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def recorded() -> list[TrainingCost]:
    costs = []
    for model in MODELS:
        costs += [read_training_cost(model, CELLS / f"{model}-seed{seed}") for seed in SEEDS]
    return costs


def test_trainings_side_by_side_are_counted(recorded):
    """Four trainings of one hour: two begin together, one half an hour later, one much later."""
    begins = [0.0, 0.0, 0.5, 5.0]
    start = datetime(2026, 11, 28)
    costs = []
    for cost, begin in zip(recorded[:4], begins, strict=True):
        begin_time = start + timedelta(hours=begin)
        times = {"begin": begin_time, "end": begin_time + timedelta(hours=1)}
        costs.append(replace(cost, processor="A", model=str(begin), **times))
    costs.append(replace(costs[-1], processor="B"))
    at_a_time = {row.model: row.runs_at_a_time for row in cost_rows(costs[:-1])}
    on_two_machines = {row.model: row.runs_at_a_time for row in cost_rows(costs)}
    assert at_a_time == on_two_machines
    assert at_a_time == pytest.approx({"0.0": 2.5, "0.5": 2.0, "5.0": 1.0})


def test_cost_table_has_means_over_the_seeds_of_each_model(recorded):
    _, *rows = cells_of(cost_table(recorded))
    assert [row[0] for row in rows] == list(MODELS)
    last = []
    for seed in SEEDS:
        path = CELLS / f"wikipedia-sinusoidal-512-seed{seed}" / "training.json"
        last.append(json.loads(path.read_text())["results"][-1]["cost"])
    _, minutes, speed, memory, _ = rows[1]
    assert float(minutes) == pytest.approx(sum(x["seconds"] for x in last) / 180, abs=0.06)
    assert float(speed.rstrip("k")) * 1000 == pytest.approx(
        sum(x["tokens_per_second"] for x in last) / 3, abs=51
    )
    assert float(memory.split()[0]) * 1000 == pytest.approx(
        sum(x["peak_memory_mb"] for x in last) / 3, abs=6
    )


def test_recorded_begin_is_the_hours_before_the_last_validation(recorded):
    cost = recorded[-1]
    assert (cost.end - cost.begin).total_seconds() == pytest.approx(3600 * cost.hours, abs=1e-3)


def test_unknown_speed_does_not_count(recorded, tmp_path):
    """A training of one update has no speed, because its first update is not timed."""
    document = json.loads((CELLS / f"{MODELS[0]}-seed1" / "training.json").read_text())
    del document["results"][-1]["cost"]["tokens_per_second"]
    (tmp_path / "training.json").write_text(json.dumps(document))
    unknown = read_training_cost("alibi", tmp_path)
    known = replace(unknown, tokens_per_second=2000.0)
    assert cost_rows([unknown, known])[0].tokens_per_second == 2000
    _, row = cells_of(cost_table([unknown]))
    assert row[2] == "–"
