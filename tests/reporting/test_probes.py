"""Tables of accuracies on probes."""

from __future__ import annotations

import pytest
from results_documents import cells_of, document, make_record

from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.reporting.probes import accuracy_table, probe_columns
from alibi_fairseq.results.record import ProbeMeasurement


def record(method, length, depth, accuracy, seed: int | None = 1, **changes) -> ProbeMeasurement:
    """Return a measurement of a probe."""
    values = {
        "method": method,
        "train_length": 64,
        "seed": seed,
        "length": length,
        "depth": depth,
        "gap": 5,
        "trials": 64,
        "chance": 0.1,
        "accuracy": accuracy,
    }
    return make_record(ProbeMeasurement, **values | changes)


def probe_records(*records: ProbeMeasurement) -> list[ProbeMeasurement]:
    """Return the measurements of a results file of a probe."""
    return document(*records, kind="probe", corpus="copy", seed=None).records


def test_table_averages_depths_then_seeds():
    records = [record("none", 64, depth, 0.15) for depth in (0.0, 1.0)]
    for seed, accuracy in ((1, 0.5), (2, 0.9)):
        records.append(record("alibi", 64, 0.0, accuracy, seed))
        records.append(record("alibi", 64, 1.0, 1.0, seed))
        records.append(record("alibi", 256, 0.0, 0.25, seed))
    results = probe_records(*records)
    text = accuracy_table(results)
    assert text.startswith(
        "All models: copy; fp32; mean and standard deviation of 2 seeds; a single"
    )
    assert cells_of(text)[1:] == [
        ["ALiBi, L=64", "85% ± 14", "25% ± 0"],
        ["No positions, L=64", "15%", "–"],
    ]
    assert "guessing: 10%" in text
    assert "none has learned" not in text
    assert probe_columns("copy", results)["copy at 4 L"][MethodSpec.plain("none"), 64, ()] == "–"


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (
            {"options": {"lr": "0.001"}},
            {"options": {"lr": "0.002"}},
            ["--lr 0.001", "--lr 0.002"],
        ),
        (
            {"options": {"data": "data-1"}},
            {"options": {"data": "data-2"}},
            ["trained on data-1", "trained on data-2"],
        ),
        ({"updates": 10}, {"updates": 20}, ["10 updates", "20 updates"]),
        ({"seed": None}, {"seed": 1}, ["seed 1", "unknown seed"]),
    ],
    ids=["learning rate", "training data", "updates", "unknown seed"],
)
def test_different_models_are_not_averaged(first, second, names):
    results = probe_records(
        record("alibi", 64, 0.0, 0.5, **{"seed": 1, **first}),
        record("alibi", 64, 0.0, 0.9, **{"seed": 2, **second}),
    )
    rows = cells_of(accuracy_table(results))[1:]
    assert [row[0] for row in rows] == [f"ALiBi, L=64 ({name})" for name in names]
    assert {row[1] for row in rows} == {"50%", "90%"}
    columns = probe_columns("copy", results)
    assert sorted(columns["copy at 1 L"][MethodSpec.plain("alibi"), 64, ()].split(" / ")) == [
        "50%",
        "90%",
    ]


def test_moved_checkpoint_is_one_run():
    records = []
    for depth, folder in ((0.0, "runs"), (1.0, "/moved/runs")):
        checkpoint = {"checkpoint": f"{folder}/1/last.pt", "checkpoint_sha256": "d" * 64}
        records.append(record("alibi", 64, depth, 0.5 + depth / 2, **checkpoint))
    assert cells_of(accuracy_table(probe_records(*records)))[1:] == [["ALiBi, L=64", "75%"]]


def test_unlearned_probe_is_reported_and_dropped():
    """Repeating the symbols in any order is above chance but is not copying."""
    results = probe_records(record("none", 64, 0.0, 0.49), record("none", 256, 0.0, 0.9))
    assert "none has learned" in accuracy_table(results)
    assert probe_columns("copy", results) == {}
