"""The table and the figure of the paper's title on a study's page."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from results_documents import cells_of
from test_page import Evaluation, change, read_losses

from alibi_fairseq.reporting.training_costs import cost_rows, cost_table
from studies import six_tests
from studies.paper_claim import paper_claim_section
from studies.primary_tests import StudiedModels, recovered_gain
from studies.study_results import StudyResults
from studies.title_claim import load_training_costs, title_claim_section

ROOT = Path(__file__).parents[2]
SECONDARY = ROOT / "results" / "small_models" / "secondary"
MODELS = StudiedModels("wikipedia", 128, baseline="share")


@pytest.fixture
def results(tmp_path) -> Path:
    """Copy models of 3.1M tokens that were trained at 128 and at 512 tokens."""
    for method, length in (("alibi", 128), ("alibi", 512), ("sinusoidal", 512), ("none", 512)):
        for seed in (1, 2, 3):
            name = f"wikipedia-{method}-{length}-seed{seed}"
            shutil.copytree(SECONDARY / "cells" / name, tmp_path / "cells" / name)
    return tmp_path


def paragraphs(text: str) -> list[str]:
    """Return paragraphs without line breaks; tables keep theirs."""
    parts = []
    for part in text.split("\n\n"):
        parts.append(part if part.startswith("|") else " ".join(part.split()))
    return parts


def sections_of(folder: Path) -> list[str]:
    """Return the paragraphs of the section, each as one line unless it is a table."""
    return paragraphs(title_claim_section(StudyResults.load(folder), MODELS))


def claim_rows(sections: list[str]) -> dict[tuple[str, str], list[str]]:
    """Return the rows of the first table by method and training length."""
    table = next(section for section in sections if section.startswith("|"))
    return {(row[0], row[1]): row[2:] for row in cells_of(table)[1:]}


def test_table_has_perplexities_and_intervals(results):
    rows = claim_rows(sections_of(results))
    losses = read_losses("secondary")
    assert list(rows) == [
        ("ALiBi", "128"),
        ("ALiBi", "512"),
        ("No positions", "512"),
        ("Sinusoidal", "512"),
    ]
    short = Evaluation("wikipedia", "alibi", 128, 512, 512)
    methods = {"ALiBi": "alibi", "No positions": "none", "Sinusoidal": "sinusoidal"}
    for (name, trained), (perplexity, changed, interval, *_) in rows.items():
        evaluation = Evaluation("wikipedia", methods[name], int(trained), 512, 512)
        nats = [seed.mean() for seed in losses[evaluation].values()]
        assert float(perplexity) == pytest.approx(math.exp(sum(nats) / 3), abs=0.006)
        if trained == "512":
            value, low, high = change(losses, short, evaluation)
            shown = [changed, *interval.split(" … ")]
            for text, number in zip(shown, (value, low, high), strict=True):
                assert float(text.rstrip("%")) == pytest.approx(number, abs=0.06)


def train_one_at_a_time(results: Path) -> None:
    """Record that each model was trained on a day of its own."""
    for index, path in enumerate(sorted(results.glob("cells/*/training.json"))):
        training = json.loads(path.read_text())
        training["provenance"]["date"] = f"2026-10-{index + 1:02}T12:00:00Z"
        path.write_text(json.dumps(training))


def test_table_has_the_mean_cost_over_seeds(results):
    train_one_at_a_time(results)
    row = claim_rows(sections_of(results))["Sinusoidal", "512"]
    last = []
    for seed in (1, 2, 3):
        path = results / f"cells/wikipedia-sinusoidal-512-seed{seed}/training.json"
        last.append(json.loads(path.read_text())["records"][-1])
    minutes, speed, memory = row[3:6]
    assert float(minutes) == pytest.approx(sum(x["hours"] for x in last) * 20, abs=0.06)
    assert float(speed.rstrip("k")) * 1000 == pytest.approx(
        sum(x["tokens_per_second"] for x in last) / 3, abs=51
    )
    assert float(memory.split()[0]) * 1000 == pytest.approx(
        sum(x["peak_memory_mb"] for x in last) / 3, abs=6
    )


def test_outcome_of_e6_is_next_to_the_table(results):
    """Sinusoidal embeddings recover little after 3.1M tokens; two seeds have no outcome."""
    page = "\n".join(sections_of(results))
    page = " ".join(page.split())
    assert "Outcome of E6: **baseline not trained (lead +36.1%)**." in page
    fraction = recovered_gain(StudyResults.load(results).losses, MODELS)
    assert 0 < fraction < 0.5
    assert f"recover {100 * fraction:.0f}% of what ALiBi" in page
    shutil.rmtree(results / "cells/wikipedia-none-512-seed1")
    assert "Outcome of E6: **not run**." in "\n".join(sections_of(results))


def test_loss_over_no_positions_is_not_a_percentage(results):
    """Exchange sinusoidal embeddings and no positions: what they gained is lost then."""
    study = StudyResults.load(results)
    losses = study.losses
    sinusoidal = MODELS.key("sinusoidal", 4, trained_multiple=4)
    none = MODELS.key("none", 4, trained_multiple=4)
    losses[sinusoidal], losses[none] = losses[none], losses[sinusoidal]
    page = " ".join(paragraphs(title_claim_section(study, MODELS)))
    assert "recover none of" in page
    assert "recover none of" in six_tests.tests_section(losses, MODELS)


def test_trainings_side_by_side_are_counted(results):
    """Four trainings of one hour: two begin together, one half an hour later, one much later."""
    begins = [0.0, 0.0, 0.5, 5.0]
    start = datetime(2026, 11, 28)
    costs = []
    recorded = load_training_costs(StudyResults.load(results))
    for cost, begin in zip(recorded[:4], begins, strict=True):
        begin_time = start + timedelta(hours=begin)
        times = {"begin": begin_time, "end": begin_time + timedelta(hours=1)}
        costs.append(replace(cost, processor="A", model=str(begin), **times))
    costs.append(replace(costs[-1], processor="B"))
    at_a_time = {row.model: row.runs_at_a_time for row in cost_rows(costs[:-1])}
    on_two_machines = {row.model: row.runs_at_a_time for row in cost_rows(costs)}
    assert at_a_time == on_two_machines
    assert at_a_time == pytest.approx({"0.0": 2.5, "0.5": 2.0, "5.0": 1.0})


def test_cost_table_has_a_row_per_model(results):
    costs = load_training_costs(StudyResults.load(results))
    _, *rows = cells_of(cost_table(costs))
    assert [row[0] for row in rows] == list(dict.fromkeys(cost.model for cost in costs))
    seeds = [cost for cost in costs if cost.model == costs[0].model]
    assert float(rows[0][1]) == pytest.approx(20 * sum(cost.hours for cost in seeds), abs=0.06)


def test_recorded_begin_is_the_hours_before_the_last_validation(results):
    costs = load_training_costs(StudyResults.load(results))
    cost = next(cost for cost in costs if "sinusoidal" in cost.model)
    assert (cost.end - cost.begin).total_seconds() == pytest.approx(3600 * cost.hours, abs=1e-3)


def test_page_has_only_costs_that_can_be_compared(results):
    side_by_side = sections_of(results)
    train_one_at_a_time(results)
    alone = sections_of(results)
    first = min(results.glob("cells/*/training.json"))
    training = json.loads(first.read_text())
    training["provenance"]["hardware"]["gpu"] = "A card"
    first.write_text(json.dumps(training))
    on_two_processors = sections_of(results)
    assert "### Time and memory" in alone
    assert {row[6] for row in claim_rows(alone).values()} == {"1.0"}
    for sections in (side_by_side, on_two_processors):
        assert "### Time and memory" not in sections
        assert {len(row) for row in claim_rows(sections).values()} == {4}


def test_no_section_without_models_trained_long(results):
    for path in results.glob("cells/*-512-*"):
        shutil.rmtree(path)
    assert sections_of(results) == [""]


def test_paper_tables_have_the_printed_numbers():
    """Numbers typed from the paper's Tables 1, 3, and 5."""
    sections = paragraphs(paper_claim_section())
    long, all_pairs, short = (cells_of(text)[1:] for text in sections if text.startswith("|"))
    by_pair = {(row[1], row[3]): row[4:] for row in long}
    by_table = by_pair["Table 5", "512 and 2048"]
    assert by_table[:6] == ["18.48", "17.91", "18.87", "+3.2%", "+5.4%", "-2.1%"]
    assert by_pair["Table 5", "128 and 512"][:6] == [
        "20.67",
        "19.73",
        "20.05",
        "+4.8%",
        "+1.6%",
        "+3.1%",
    ]
    assert by_pair["Table 12", "512 and 2048"][3:6] == ["+7.9%", "-0.11%", "+8.0%"]
    assert by_pair["Table 8", "512 and 3072"][3:6] == ["+3.0%", "+10.0%", "-6.3%"]
    assert by_pair["Table 7", "512 and 3072"][3:6] == ["+7.8%", "+5.8%", "+1.9%"]
    assert by_pair["Tables 13 and 15", "512 and 3072"][3:6] == ["+7.9%", "+6.3%", "+1.5%"]
    assert by_pair["Table 11", "1024 and 2048"][:6] == ["8.92", "–", "9.01", "–", "–", "-1.00%"]
    assert by_pair["Table 5", "512 and 3072"][7] == "15.3 GB vs. 15.1 GB"
    assert by_table[7] == "15.3 GB vs. –"
    assert all_pairs[0] == [
        "64",
        "+3.7%",
        "+6.7%",
        "+10.2%",
        "+12.4%",
        "+13.5%",
        "+14.4%",
        "+15.3%",
    ]
    assert short == [
        ["Sinusoidal", "19.34", "144.00"],
        ["Rotary", "19.33", "44.30"],
        ["T5 bias", "18.80", "19.44"],
        ["ALiBi", "18.66", "17.95"],
    ]
    assert any("It holds in 19 of all 41 pairs" in " ".join(text.split()) for text in sections)
