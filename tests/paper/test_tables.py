"""Tables of the paper with our numbers."""

import pytest
from results_documents import as_ours, cells_of, changed, results_of

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.collected_results import CollectedResults
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.tables import item_tables, paper_tables
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.reporting.markdown import to_markdown

ALIBI = MethodSpec.plain("alibi")
SINUSOIDAL = MethodSpec.plain("sinusoidal")
#: Update count of our models by corpus.
UPDATES = {"wikitext-103": 286000, "bookcorpus": None, "cc100-roberta": 50000}


def ours(item, shift=0.0, **settings):
    """Return the paper's measurements as ours.

    Args:
        item: table of the paper.
        shift: difference of our perplexities from the paper's.
        settings: attributes of the measurements to return (default: all measurements).
    """
    corpus = items()[item].corpus
    measurements = []
    for printed in items()[item].measurements:
        if printed.perplexity is None:
            continue
        shown = {**vars(printed), "length": printed.case.length}
        if any(shown[key] != value for key, value in settings.items()):
            continue
        perplexity = printed.perplexity + shift
        updates = printed.updates or UPDATES[corpus]
        settings_of_ours = {"updates": updates, "corpus": corpus}
        settings_of_ours["architecture"] = paper.paper_setting(corpus)["model"]
        measurement = as_ours(printed, perplexity=perplexity, **settings_of_ours)
        measurements.append(measurement)
    return measurements


def report_table(item, collected):
    """Format a table of the report."""
    return to_markdown(paper_tables(items()[item], collected))


def table(item, measurements):
    """Format a table from measurements in the paper's setting."""
    return report_table(item, CollectedResults(results=results_of(*measurements)))


def test_table_5_has_rows_and_columns_of_the_paper():
    text = table("table05", ours("table05", 0.3, method=ALIBI))
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
    names = [row[0] for row in rows]
    index = names.index("ALiBi, L=512")
    assert rows[index][-1] == "18.40"
    ours_line = ["ours", "–", "–", "–", "20.03", "19.11", "18.80", "18.78", "18.70"]
    assert rows[index + 1][1:] == ours_line
    assert rows[index + 2][1:] == ["difference", "–", "–", "–", *["+0.30 ~"] * 5]
    assert rows[-1][1:] == ["ours", "–", "–", "–", "missing", "missing", "–", "–", "missing"]


@pytest.mark.parametrize(
    ("item", "changes"),
    [
        (
            "table05",
            {"train_length": 512, "method": MethodSpec.plain("rotary")},
        ),  # not in the diagonal row
        ("table07", {"stride": 1}),
        ("table07", {"length": 2048}),
    ],
)
def test_table_ignores_other_models_strides_and_lengths(item, changes):
    method = changes.pop("method", ALIBI)
    measurement = ours(item, method=method, length=3072)[-1]
    shown = changed(measurement, perplexity=77.77)
    ignored = changed(shown, **changes)
    assert "77.77" in table(item, [shown])
    assert "77.77" not in table(item, [ignored])


def test_lengths_beyond_the_text_are_marked():
    (whole,) = ours("table05", method=ALIBI, train_length=512, length=3072)
    text = table("table05", [changed(whole, longest_window=1548)])
    assert "18.40 †" in text
    assert "has 1,548 tokens" in text


def test_variants_have_separate_lines():
    measurements = ours("table15", train_length=3072)
    earlier = [
        changed(measurement, updates=280000, perplexity=17.5) for measurement in measurements
    ]
    rows = cells_of(table("table15", measurements + earlier))
    variants = ["ours (280,000 updates)", "ours (286,000 updates)"]
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


SPEEDS = {"tokens_per_second": 9000.0, "tokens_per_second_batch_1": 4000.0}


def test_evaluation_speeds_come_from_evaluations():
    measurements = ours("table02", method=ALIBI)
    measurements = [changed(measurement, **SPEEDS) for measurement in measurements]
    rows = cells_of(table("table02", measurements))
    headers = next(row for row in rows if "ALiBi, L=512: ours, batch 1" in row)
    first_length = rows[rows.index(headers) + 1]
    speeds = dict(zip(headers, first_length, strict=True))
    assert speeds["ALiBi, L=512: paper, batch 1"] == "14726"
    assert speeds["ALiBi, L=512: ours, batch 1"] == "4000"
    assert speeds["ALiBi, L=512: ours, full batches"] == "9000"


def test_evaluation_speeds_are_averaged_over_seeds():
    measurements = []
    for seed, speed in ((1, None), (2, 4000.0), (3, 6000.0)):
        for measurement in ours("table02", method=ALIBI):
            of_seed = {"seed": seed, "tokens_per_second_batch_1": speed}
            measurements.append(changed(measurement, data_sha256="a" * 64, **of_seed))
    rows = cells_of(table("table02", measurements))
    headers = next(row for row in rows if "ALiBi, L=512: ours, batch 1" in row)
    first_length = rows[rows.index(headers) + 1]
    assert first_length[headers.index("ALiBi, L=512: ours, batch 1")] == "5000"


def test_table_6_has_speeds_of_evaluation():
    measurements = ours("table06", train_length=512)
    measurements = [changed(measurement, **SPEEDS) for measurement in measurements]
    rows = cells_of(table("table06", measurements))
    index = rows.index(["ALiBi, L=512", "paper, batch 1", "13600"])
    assert rows[index + 1] == ["", "ours, batch 1", "4000"]
    assert rows[index + 2] == ["", "ours, full batches", "9000"]


def test_tables_11_and_12_distinguish_update_counts():
    measurements = ours("table12", method=SINUSOIDAL)  # 50k updates; Table 11 has 46.7k
    rows = cells_of(table("table11", measurements))
    assert rows[2][1:] == ["ours", "missing", "–"]
    measurement = changed(ours("table11")[0], updates=46500)
    rows = cells_of(table("table11", [measurement]))
    assert rows[2][1:] == ["ours", "9.24", "–"]


@pytest.mark.parametrize(
    ("item", "model"),
    [
        ("table02", "T5 bias, L=512"),
        ("table03", "T5 bias, L=1024"),
        ("table04", "T5 bias, L=3072"),
    ],
)
def test_out_of_memory_is_shown(item, model):
    headers, *rows = cells_of(table(item, []))
    column = headers.index(f"{model}: paper")
    perplexities = [row[column] for row in rows if len(row) == len(headers)]
    assert perplexities.count("OOM") in (3, 4)
    statuses = [measurement.status for measurement in items()[item].measurements]
    assert perplexities.count("OOM") == statuses.count("OOM")


def test_unprinted_points_of_curves_are_dashes():
    tables = item_tables(items()["figure05"], [], "ours (smoke)", compare=False)
    rows = cells_of(to_markdown(tables))
    paper_lines = {row[0]: row[2:] for row in rows if row[1] == "paper"}
    for fraction in ("20.0%", "40.0%", "60.0%", "80.0%"):
        assert set(paper_lines[f"ALiBi, L=1024, {fraction} trained"]) == {"–"}
    assert paper_lines["ALiBi, L=1024"] == ["–", "8.92"]
