"""Tables of the paper with our numbers."""

from dataclasses import replace

import pytest
from results_documents import cells_of

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper import report_tables
from alibi_fairseq.paper.report_data import ReportData

MODELS = {"wikitext-103": 286000, "bookcorpus": None, "cc100-roberta": 50000}


def ours(item, shift=0.0, **values):
    """Return the paper's measurements with these values as ours, with shifted perplexity."""
    corpus = paper.about(item)["corpus"]
    points = []
    for point in paper.measurements(item):
        selected = all(getattr(point, key) == value for key, value in values.items())
        if selected and point.perplexity is not None:
            perplexity = point.perplexity + shift
            updates = point.updates or MODELS[corpus]
            points.append(replace(point, perplexity=perplexity, updates=updates, corpus=corpus))
    return points


def table(item, measurements=(), training=()):
    """Format a table from measurements and validations in the paper's setting."""
    corpus = paper.about(item)["corpus"]
    results = ReportData(measurements=list(measurements))
    model = paper.settings(corpus)["model"]
    cells = [{"model": model, "subset": "valid"} | cell for cell in training]
    results.documents.append((None, {"kind": "training", "corpus": corpus, "cells": cells}))
    return report_tables.table(item, results)


def test_table_5_has_rows_and_columns_of_the_paper():
    text = table("table05", ours("table05", 0.3, position_method="alibi"))
    rows = cells_of(text)
    assert rows[0][2:] == ["64", "128", "256", "512", "1024", "1536", "2048", "3072"]
    assert [row[0] for row in rows[1:] if row[0]] == [
        "ALiBi, L=64",
        "ALiBi, L=128",
        "ALiBi, L=256",
        "ALiBi, L=512",
        "ALiBi, L=1024",
        "ALiBi, L=1536",
        "ALiBi, L=2048",
        "ALiBi, L=3072",
        "Sinusoidal, L = evaluation length",
        "Rotary, L = evaluation length",
        "T5 bias, L = evaluation length",
    ]
    at = next(i for i, row in enumerate(rows) if row[0] == "ALiBi, L=512")
    assert rows[at][-1] == "18.40"
    assert rows[at + 1][1:] == ["ours", "–", "–", "–", "20.03", "19.11", "18.80", "18.78", "18.70"]
    assert rows[at + 2][1:] == ["difference", "–", "–", "–", *["+0.30 ~"] * 5]
    assert rows[-1][1:] == ["ours", "–", "–", "–", "missing", "missing", "–", "–", "missing"]


@pytest.mark.parametrize(
    ("item", "changes"),
    [
        ("table05", {"train_length": 512, "position_method": "rotary"}),  # not in the diagonal row
        ("table07", {"stride": 1}),
        ("table07", {"length": 2048}),
    ],
)
def test_table_ignores_other_models_strides_and_lengths(item, changes):
    method = changes.pop("position_method", "alibi")
    point = ours(item, position_method=method, length=3072)[-1]
    text = table(item, [replace(point, perplexity=77.77, **changes)])
    assert "77.77" not in text
    assert "77.77" in table(item, [replace(point, perplexity=77.77)])


def test_variants_have_separate_lines():
    points = ours("table15", train_length=3072)
    points += [replace(point, updates=280000, perplexity=17.5) for point in points]
    rows = cells_of(table("table15", points))
    variants = [f"ours ({updates} updates)" for updates in (280000, 286000)]
    expected = ["paper", variants[0], "difference", variants[1], "difference"]
    assert [row[1] for row in rows[-5:]] == expected


def test_test_set_tables_keep_models_by_other_authors():
    rows = cells_of(table("table07", ours("table07", -0.5)))
    others = [row for row in rows if row[0].endswith("(as printed)")]
    assert ["Sandwich Transformer (as printed)", "paper", "–", "17.96"] in others
    assert rows[-3:] == [
        ["ALiBi, L=3072", "paper", "16.97", "17.66"],
        ["", "ours", "16.47", "17.16"],
        ["", "difference", "-0.50 ~", "-0.50 ~"],
    ]


def test_speeds_come_from_evaluation_and_training_record():
    fast = {"tokens_per_second": 9000.0, "tokens_per_second_batch_1": 4000.0}
    points = [replace(p, **fast) for p in ours("table02", position_method="alibi")]
    rows = cells_of(table("table02", points))
    headers = next(row for row in rows if "ALiBi, L=512: ours, batch 1" in row)
    speeds = dict(zip(headers, rows[rows.index(headers) + 1], strict=True))
    assert speeds["ALiBi, L=512: paper, batch 1"] == "14726"
    assert speeds["ALiBi, L=512: ours, batch 1"] == "4000"
    assert speeds["ALiBi, L=512: ours, full batches"] == "9000"

    points = [replace(p, **fast) for p in ours("table06", train_length=512)]
    record = {"position_method": "alibi", "train_length": 512, "updates": 9}
    record |= {"tokens_per_second": 240000.0, "processes": 8}
    rows = cells_of(table("table06", points, [record]))
    at = rows.index(["ALiBi, L=512", "paper", "28.3k"])
    assert rows[at + 1] == ["", "ours", "30.0k"]
    at = rows.index(["ALiBi, L=512", "paper, batch 1", "13600"])
    assert rows[at + 1 : at + 3] == [
        ["", "ours, batch 1", "4000"],
        ["", "ours, full batches", "9000"],
    ]


def test_tables_11_and_12_distinguish_update_counts():
    points = ours("table12", position_method="sinusoidal")  # 50k updates; Table 11 has 46.7k
    rows = cells_of(table("table11", points))
    assert rows[2][1:] == ["ours", "missing", "–"]
    at = rows.index(["Sinusoidal, L=1024", "paper", "26.2 GB", "46.7k", "5.5k"])
    assert rows[at + 1][1:] == ["ours", "missing", "missing", "missing"]
    training = {"position_method": "sinusoidal", "train_length": 1024, "updates": 46500}
    training |= {"gpu_hours": 5432.1, "peak_memory_mb": 25500.0}
    early = replace(ours("table11")[0], updates=46500)
    old = training | {"updates": 50000, "gpu_hours": 9999.0}
    rows = cells_of(table("table11", [early], [training, old]))
    assert rows[2][1:] == ["ours", "9.24", "–"]
    assert rows[at + 2][1:] == ["ours", "25.5 GB", "46.5k", "5.4k"]  # a difference was added above


def test_costs_have_one_line_of_ours_per_model():
    """Costs come from the training records, which do not distinguish variants."""
    point = ours("table11", position_method="alibi", train_length=512)[0]
    variants = [replace(point, updates=updates) for updates in (49900, 50000)]
    record = {"position_method": "alibi", "train_length": 512, "updates": 50000}
    record |= {"gpu_hours": 5432.1, "peak_memory_mb": 25500.0}
    rows = cells_of(table("table11", variants, [record]))
    sources = [row[1] for row in rows]
    assert "ours (49900 updates)" in sources
    assert "ours (50000 updates)" in sources
    costs = rows[rows.index(["model", "", "memory", "updates", "GPU hours"]) + 1 :]
    assert len(costs) == 2 * 4
    at = costs.index(["ALiBi, L=512", "paper", "24.6 GB", "50.0k", "5.5k"])
    assert costs[at + 1] == ["", "ours", "25.5 GB", "50.0k", "5.4k"]
