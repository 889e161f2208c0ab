"""Figure 5 and the "11 % faster" of section 4.2, from curves."""

import math
from dataclasses import replace

import pytest
from results_documents import cells_of, document

from alibi_fairseq.reporting import paper_figures, paper_tables
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.speed import time_curve, times_as_fast
from alibi_fairseq.results.points import Point

UPDATES = (10_000, 20_000, 30_000, 40_000, 50_000)


def perplexity(updates: float, scale: float = 1.0) -> float:
    return 8.5 + scale * 20_000 / updates


def trained(method, train_length, hours_per_update):
    return [
        {
            "model": "alibi_lm_1b3",
            "position_method": method,
            "train_length": train_length,
            "length": train_length,
            "subset": "valid",
            "updates": updates,
            "loss_bits": math.log2(perplexity(updates)),
            "gpu_hours": updates * hours_per_update,
        }
        for updates in UPDATES
    ]


def measured():
    """ALiBi at half the length is as good after the same updates, which take a tenth less time."""
    cells = trained("sinusoidal", 2048, 0.11) + trained("alibi", 1024, 0.1)
    point = Point("alibi", 1024, 2048, 2048, "valid", 0.0, model="alibi_lm_1b3")
    points = [
        replace(point, corpus="cc100-roberta", updates=n, perplexity=perplexity(n)) for n in UPDATES
    ]
    documents = [(None, document(*cells, kind="training", corpus="cc100-roberta"))]
    return Results(documents=documents, points=points)


def test_evaluations_at_another_length_stand_at_the_hours_of_their_updates():
    case = {"position_method": "alibi", "train_length": 1024, "length": 2048}
    curve = time_curve(measured(), "cc100-roberta", case)
    assert curve == [(pytest.approx(n * 0.1), perplexity(n)) for n in UPDATES]
    without_hours = measured()
    for cell in without_hours.documents[0][1]["cells"]:
        del cell["gpu_hours"]
    assert time_curve(without_hours, "cc100-roberta", case) == []


def test_a_run_with_a_tenth_less_time_per_update_is_as_much_faster():
    rows = cells_of(paper_tables.table("table11", measured()))
    assert [row for row in rows if row[0] == "ALiBi, L=1024"][-1] == [
        *("ALiBi, L=1024", "Sinusoidal, L=2048", "2048", "+11%", "+10%")
    ]
    assert rows[-2][-1] == "missing"  # evaluated at 1024: not measured


def test_no_ratio_without_a_perplexity_that_both_reach():
    assert times_as_fast([(1.0, 9.0), (2.0, 8.0)], [(1.0, 7.0), (2.0, 6.0)]) is None
    assert times_as_fast([], [(1.0, 7.0)]) is None
    # a rise in between does not make a perplexity reached later
    noisy = [(1.0, 9.0), (2.0, 8.0), (3.0, 8.5), (4.0, 7.0)]
    assert times_as_fast(noisy, noisy) == pytest.approx(1.0)


def test_curves_are_drawn_beside_the_end_points(tmp_path):
    paper_figures.figure05(measured(), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert "<!-- ALiBi, L=1024 -->" in text and "<!-- Sinusoidal, L=2048 -->" in text
    assert "<!-- ALiBi, L=1024 (paper, end point) -->" in text
