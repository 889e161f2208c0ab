"""A report of complete results fills every table and draws every figure of the paper.

The results are synthetic: the paper's numbers, written as results files. A number that a table or
figure needs and no results file provides is reported as missing.
"""

from __future__ import annotations

import itertools

import pytest
from figure_texts import figure_texts
from results_documents import (
    PREPARED,
    Record,
    cells_of,
    changed,
    document,
    evaluation_record,
    figures_as_svg,
)

from alibi_fairseq import cli
from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.collected_results import collect
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.tables import paper_tables
from alibi_fairseq.reporting.markdown import to_markdown
from alibi_fairseq.results.file import save
from alibi_fairseq.results.values import TextSummary

UPDATES = {"wikitext-103": 286_000, "bookcorpus": 560_000, "cc100-roberta": 50_000}
SPEEDS = {"tokens_per_second": 20_000.0, "tokens_per_second_batch_1": 10_000.0}
#: Tables of perplexities; ``test_speeds.py`` tests Table 1.
TABLES = [item.key for item in items().values() if item.is_table and item.measurements]
#: Label of one of our lines in each figure of perplexity by length.
OURS = {
    "figure01": "ALiBi",
    "figure04": "ALiBi, L=64",
    "figure06": "Sinusoidal",
    "figure09": "ALiBi, L=512",
    "figure11": "ALiBi, L=3072",
}


def evaluations(corpus: str) -> list[Record]:
    """Return records for every printed perplexity of a corpus."""
    records = {}  # by settings, because several items print the same perplexity
    for item in (*TABLES, "figure06"):
        if items()[item].corpus != corpus:
            continue
        for measurement in items()[item].measurements:
            settings = {
                "method": measurement.method,
                "train_length": measurement.train_length,
                "length": measurement.case.length,
                "stride": measurement.case.stride,
                "subset": measurement.case.split,
                "updates": measurement.updates or UPDATES[corpus],
            }
            perplexity = measurement.perplexity or 99.0
            architecture = paper.paper_setting(corpus)["model"]
            record = evaluation_record(perplexity, architecture=architecture, **settings, **SPEEDS)
            records.setdefault(tuple(settings.values()), record)
    return [changed(record, corpus=corpus, text=PREPARED) for record in records.values()]


def saved(folder, *files):
    """Write a results file of each list of records to a folder, and return it."""
    for number, records in enumerate(files):
        save(document(*records), folder / f"{number}.json")
    return folder


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Folder of the complete report, written by the command."""
    folder = tmp_path_factory.mktemp("complete")
    saved(folder / "in", *[evaluations(corpus) for corpus in UPDATES])
    with figures_as_svg():
        assert cli.main(["report", str(folder / "in"), "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.mark.ci
@pytest.mark.parametrize("item", TABLES)
def test_table_has_ours_for_every_printed_perplexity(complete, item):
    text = (complete / "tables" / f"{item}.md").read_text()
    shown = list(itertools.chain(*cells_of(text)))
    printed = []
    for measurement in items()[item].measurements:
        if measurement.perplexity is not None:
            printed.append(f"{measurement.perplexity:.2f}")
    assert set(printed) <= set(shown)
    assert sum(cell.startswith("+0.00") for cell in shown) == len(printed)
    assert "missing" not in text


def test_figures_draw_ours(complete):
    by_length = {item.key for item in items().values() if item.drawing == "lengths"}
    assert by_length == set(OURS)
    for item, label in OURS.items():
        texts = figure_texts(complete / "figures" / f"{item}.svg")
        assert label in texts, item
        assert any("paper" in text for text in texts), item


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"tokenizer": "sentencepiece"}, "the tokenizer is sentencepiece, the paper's wordpiece"),
        ({"tokenizer": "<b>*x*"}, r"the tokenizer is &lt;b&gt;\*x\*, the paper's wordpiece"),
        ({"train_tokens": 984_846_357}, "984,846,357 tokens, about 700,000,000 in the paper"),
        ({"vocabulary": 32_000}, "32,000 entries in the vocabulary, about"),
        ({"train_bytes": 4_629_000_000}, "4,629,000,000 bytes of text, about 2,900,000,000"),
        ({"train_bytes": None}, "the results do not record the number of bytes"),
    ],
)
def test_marks_require_text_like_the_papers(tmp_path, changes, reason):
    text = {
        "tokenizer": "wordpiece",
        "vocabulary": 28_996,
        "train_tokens": 698_000_000,
        "train_bytes": 3_000_000_000,
    }
    text.update(changes)
    summary = TextSummary(**text)
    records = [changed(record, text=summary) for record in evaluations("bookcorpus")]
    results = collect([saved(tmp_path, records)])
    for item in ("table08", "table09", "table10"):
        shown = to_markdown(paper_tables(items()[item], results))
        assert ("+0.00 =" in shown) == (reason is None), item
        if reason is not None:
            assert f"No marks: {reason}" in shown
