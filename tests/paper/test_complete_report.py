"""A report of complete results fills every table and draws every figure of the paper.

The results are synthetic: the paper's numbers, written as results files. A number that a table or
figure needs and no results file provides is reported as missing.
"""

from __future__ import annotations

import re

import pytest
from results_documents import cells_of, document, evaluation_cell, figures_as_svg

from alibi_fairseq import cli
from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper import report_tables
from alibi_fairseq.paper.report_data import collect
from alibi_fairseq.paper.report_figures import FIGURES
from alibi_fairseq.paper.tables import CURVE_UPDATES, curve_evaluations
from alibi_fairseq.results.results_file import save_results_file

GPU = {"cpu": "a processor", "cores": 8, "memory_gb": 64.0, "gpu": "a GPU"}
UPDATES = {"wikitext-103": 286_000, "bookcorpus": 560_000, "cc100-roberta": 50_000}
SPEEDS = {"tokens_per_second": 20_000.0, "tokens_per_second_batch_1": 10_000.0}
#: Label of one of our lines in each figure of the paper.
OURS = {
    "figure01": "ALiBi",
    "figure02": "a GPU, bf16, alibi_lm_wiki103",
    "figure04": "ALiBi, L=64",
    "figure05": "ALiBi, L=1024",
    "figure06": "Sinusoidal",
    "figure07": "ALiBi / sinusoidal, a GPU, bf16, alibi_lm_wiki103 (tokens)",
    "figure08": "ours, per process",
    "figure09": "ALiBi, L=512",
    "figure11": "ALiBi, L=3072",
}


def evaluations(corpus: str) -> dict:
    """Return results for every printed perplexity of a corpus and the curves of Figure 5."""
    cells = {}
    model = paper.settings(corpus)["model"]
    for item in (*report_tables.PERPLEXITY_TABLES, "figure06", "figure08"):
        if paper.about(item)["corpus"] != corpus:
            continue
        for point in paper.measurements(item):
            settings = {
                "position_method": point.position_method,
                "train_length": point.train_length,
                "length": point.length,
                "stride": point.stride,
                "subset": point.subset,
                "updates": point.updates or UPDATES[corpus],
            }
            cell = evaluation_cell(point.perplexity or 99.0, **settings, **SPEEDS)
            cells.setdefault(tuple(settings.values()), cell | {"model": model})
    if corpus == "cc100-roberta":
        for evaluation in curve_evaluations():
            [length] = evaluation.lengths
            settings = {
                "position_method": evaluation.recipe.position_method,
                "train_length": evaluation.recipe.train_length,
                "length": length,
                "stride": length,
                "subset": "valid",
                "updates": evaluation.updates,
            }
            cell = evaluation_cell(9.0 + 5_000 / evaluation.updates, **settings)
            cells.setdefault(tuple(settings.values()), cell | {"model": model})
    return document(*cells.values(), corpus=corpus)


def trainings(corpus: str) -> dict:
    """Return a training record of every evaluated run, with validations up to its end."""
    checkpoints = {*CURVE_UPDATES, 44_200, 46_700, UPDATES[corpus]}
    runs = {(c["position_method"], c["train_length"]) for c in evaluations(corpus)["cells"]}
    cells = [
        {
            "model": paper.settings(corpus)["model"],
            "position_method": method,
            "train_length": train_length,
            "length": train_length,
            "subset": "valid",
            "updates": updates,
            "loss_bits": 3.2 + 1_000 / updates,
            "gpu_hours": updates / 9,
            "peak_memory_mb": 25_000.0,
            "tokens_per_second": 8 * 25_000.0,
            "processes": 8,
        }
        for method, train_length in sorted(runs)
        for updates in sorted(checkpoints)
    ]
    return document(*cells, kind="training", corpus=corpus)


def speeds() -> dict:
    """Return results like those of ``benchmarks.methods`` for Table 1 and Figure 7."""
    models = {(r["position_method"], r["train_length"]) for r in paper.rows("table01")}
    models |= {(r["position_method"], r["train_length"]) for r in paper.rows("figure07")}
    cells = [
        {
            "name": f"table 1, {method}",
            "phase": "train",
            "position_method": method,
            "model": "alibi_lm_wiki103",
            "length": length,
            "baseline": "sinusoidal",
            "ratio": 1.0,
            "tokens_per_second": 30_000.0,
            "evaluation_tokens_per_second": 80_000.0,
            "peak_memory_mb": 15_000.0,
        }
        for method, length in sorted(models)
    ]
    return document(
        *cells, kind="benchmark", corpus="random tokens", hardware=GPU, precision="bf16"
    )


def saved(folder, *documents):
    for number, results in enumerate(documents):
        save_results_file(results, folder / f"{number}.json")
    return folder


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Folder of the complete report, written by the command."""
    folder = tmp_path_factory.mktemp("complete")
    documents = [make(corpus) for make in (evaluations, trainings) for corpus in UPDATES]
    saved(folder / "in", *documents, speeds())
    with figures_as_svg():
        assert cli.main(["report", str(folder / "in"), "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.mark.parametrize("item", report_tables.TABLES)
def test_table_has_ours_for_every_printed_perplexity(complete, item):
    text = (complete / "tables" / f"{item}.md").read_text()
    shown = [cell for row in cells_of(text) for cell in row]
    printed = []
    if item != "table01":
        printed = [point for point in paper.measurements(item) if point.perplexity]
    assert {f"{point.perplexity:.2f}" for point in printed} <= set(shown)
    assert sum(cell.startswith("+0.00") for cell in shown) == len(printed)
    assert "missing" not in text


def test_figures_draw_ours(complete):
    assert set(FIGURES) == set(OURS) == {f"figure{n:02d}" for n in (1, 2, 4, 5, 6, 7, 8, 9, 11)}
    for item, label in OURS.items():
        text = (complete / "figures" / f"{item}.svg").read_text()
        assert f"<!-- {label} -->" in text, item
        assert len(re.findall(r"<!-- .*paper.* -->", text)) > 0, item


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"tokenizer": "sentencepiece"}, "the tokenizer is sentencepiece, the paper's wordpiece"),
        ({"train_tokens": 984_846_357}, "984,846,357 tokens, about 700,000,000 in the paper"),
        ({"vocabulary": 32_000}, "32,000 entries in the vocabulary, about"),
        ({"train_bytes": 4_629_000_000}, "4,629,000,000 bytes of text, about 2,900,000,000"),
        ({"train_bytes": None}, "the results do not record the number of bytes"),
    ],
)
def test_verdicts_require_text_like_the_papers(tmp_path, changes, reason):
    text = {
        "tokenizer": "wordpiece",
        "vocabulary": 28_996,
        "train_tokens": 698_000_000,
        "train_bytes": 3_000_000_000,
    }
    text.update(changes)
    results_file = evaluations("bookcorpus")
    results_file["provenance"] = {**results_file["provenance"], "text": text}
    results = collect([saved(tmp_path, results_file)])
    for item in ("table08", "table09", "table10"):
        shown = report_tables.table(item, results)
        assert ("+0.00 =" in shown) == (reason is None), item
        if reason is not None:
            assert f"No verdicts: {reason}" in shown
