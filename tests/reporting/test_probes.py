"""Tables and heat maps of accuracies on probes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from figure_texts import figure_texts
from results_documents import cells_of, evaluation_record, probe_result

from alibi_fairseq.data.probes import DEPTHS
from alibi_fairseq.reporting.figures_of_probes import draw_heat_maps
from alibi_fairseq.reporting.markdown import to_markdown
from alibi_fairseq.reporting.probes import accuracy_table, area_table
from alibi_fairseq.results.result import Result


def measured(method, length, depth, accuracy, seed: int | None = 1, **changes) -> Result:
    """Return the accuracy of a model on a probe."""
    gap = changes.pop("gap", 5)
    trained = evaluation_record(method=method, **{"seed": seed, **changes})
    return probe_result(accuracy, length, depth, trained, gap)


def measured_at_all_depths(method, length, accuracy, seed: int | None = 1, **changes):
    """Return the same accuracy at all depths."""
    return [measured(method, length, depth, accuracy, seed, **changes) for depth in DEPTHS]


def accuracies(results: list[Result]) -> str:
    """Format the table of accuracies, without that of conditions."""
    table = accuracy_table(results)
    return to_markdown([replace(table, different=None)])


def test_table_averages_depths_then_seeds():
    records = measured_at_all_depths("none", 64, 0.15)
    for seed, accuracy in ((1, 0.0), (2, 0.5)):
        records.append(measured("alibi", 64, 0.0, accuracy, seed))
        records += [measured("alibi", 64, depth, 1.0, seed) for depth in DEPTHS[1:]]
        records += measured_at_all_depths("alibi", 256, 0.25, seed)
    text = accuracies(records)
    assert text.startswith(
        "All models: copy; fp32; learning rate 0.25; mean and standard deviation of 2 seeds; "
        "a single"
    )
    assert cells_of(text)[1:] == [
        ["ALiBi, L=64", "85% ± 7", "25% ± 0"],
        ["No positions, L=64", "15%", "–"],
    ]
    assert "guessing: 10%" in text
    assert "none has learned" not in text


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (
            {"options": {"lr": "0.001"}},
            {"options": {"lr": "0.002"}},
            ["lr 0.001", "lr 0.002"],
        ),
        (
            {"options": {"data": "data-1"}},
            {"options": {"data": "data-2"}},
            ["trained on data-1", "trained on data-2"],
        ),
        ({"updates": 10}, {"updates": 20}, ["10 updates", "20 updates"]),
        ({"seed": None}, {"seed": 1}, ["", "unknown seed"]),
    ],
    ids=["learning rate", "training data", "updates", "unknown seed"],
)
def test_different_models_are_not_averaged(first, second, names):
    results = [
        *measured_at_all_depths("alibi", 64, 0.5, **{"seed": 1, **first}),
        *measured_at_all_depths("alibi", 64, 0.9, **{"seed": 2, **second}),
    ]
    rows = cells_of(accuracies(results))[1:]
    labels = [f"ALiBi, L=64 ({name})" if name else "ALiBi, L=64" for name in names]
    assert [row[0] for row in rows] == labels
    assert {row[1] for row in rows} == {"50%", "90%"}


def test_moved_checkpoint_is_one_run():
    records = []
    for depth in DEPTHS:
        folder = "/moved/runs" if depth > 0.5 else "runs"
        checkpoint = {"checkpoint": f"{folder}/1/last.pt", "checkpoint_sha256": "d" * 64}
        records.append(measured("alibi", 64, depth, 0.5 + depth / 2, **checkpoint))
    assert cells_of(accuracies(records))[1:] == [["ALiBi, L=64", "75%"]]


def test_unlearned_probe_is_reported():
    """Repeating the symbols in any order is above chance but is not copying."""
    results = measured_at_all_depths("none", 64, 0.49)
    results += measured_at_all_depths("none", 256, 0.9)
    assert "none has learned" in accuracies(results)


def test_length_without_all_depths_is_missing():
    """An interrupted evaluation has no mean over depths, and no area."""
    results = []
    for depth in DEPTHS:
        results.append(measured("alibi", 64, depth, 1.0, gap=int(64 * depth)))
    complete = area_table(results)
    results.append(measured("alibi", 256, 1.0, 0.97, gap=100))
    text = accuracies(results)
    assert cells_of(text)[1:] == [["ALiBi, L=64", "100%", "missing"]]
    assert "over 5 depths" in text
    results += measured_at_all_depths("alibi", 256, 0.5, seed=2)
    assert cells_of(accuracies(results))[1:] == [["ALiBi, L=64", "100%", "50%"]]
    assert cells_of(to_markdown([complete]))[1:] == [["ALiBi, L=64", "1.00", "–"]]
    assert cells_of(to_markdown([area_table(results)]))[1:] == [["ALiBi, L=64", "–", "–"]]
    unlearned = accuracies(results[1:5])
    assert cells_of(unlearned)[1:] == [["ALiBi, L=64", "missing"]]
    assert "none has learned" not in unlearned


def test_areas_match_numpy():
    """Two seeds; cases of equal distance are averaged, and distances at most 64 are inside."""
    curves = {
        1: {64: [1.0, 0.9, 0.8, 0.8, 0.7], 400: [0.6, 0.5, 0.3, 0.2, 0.1]},
        2: {64: [0.8, 0.6, 0.6, 0.5, 0.5], 400: [0.4, 0.5, 0.4, 0.4, 0.2]},
    }
    records = []
    for seed, curve in curves.items():
        for length, values in curve.items():
            for depth, accuracy in zip(DEPTHS, values, strict=True):
                gap = int(length * depth)
                records.append(measured("alibi", length, depth, accuracy, seed, gap=gap))
    (row,) = cells_of(to_markdown([area_table(records)]))[1:]
    near = [0, 16, 32, 48, 64]
    first = np.trapezoid([0.8, *curves[1][64][1:]], near) / 64  # at 0, the mean of 1.0 and 0.6
    second = np.trapezoid([0.6, *curves[2][64][1:]], near) / 64
    assert row[1] == mean_and_deviation(first, second)
    far = [100, 200, 300, 400]
    beyond = [np.trapezoid(curves[seed][400][1:], far) / 300 for seed in curves]
    assert row[2] == mean_and_deviation(*beyond)


def mean_and_deviation(*areas: float) -> str:
    return f"{np.mean(areas):.2f} ± {np.std(areas, ddof=1):.2f}"


def test_seed_without_a_length_has_no_area():
    """Its curve would end at another distance, or have fewer points."""
    records = []
    for seed, lengths in ((1, (64, 256, 1024)), (2, (64, 256))):
        for length in lengths:
            for depth in DEPTHS:
                accuracy = 0.5 if seed == 1 else 1.0
                gap = int(length * depth)
                records.append(measured("alibi", length, depth, accuracy, seed, gap=gap))
    (row,) = cells_of(to_markdown([area_table(records)]))[1:]
    assert row == ["ALiBi, L=64", "0.50", "0.50"]


def test_one_distance_has_no_area():
    (row,) = cells_of(to_markdown([area_table(measured_at_all_depths("alibi", 64, 1.0))]))[1:]
    assert row == ["ALiBi, L=64", "–", "–"]


def test_heat_map_is_empty_where_accuracies_are_missing(tmp_path):
    results = measured_at_all_depths("alibi", 64, 0.25)
    results.append(measured("alibi", 256, 1.0, 0.75))
    draw_heat_maps(results, "demo", tmp_path / "map.svg")
    texts = figure_texts(tmp_path / "map.svg")
    assert texts.count("25") == len(DEPTHS)
    assert texts.count("75") == 1
    assert "nan" not in texts
