"""Tables of ``alibi-fairseq reproduce``."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from results_documents import cells_of

from alibi_fairseq.paper import published, report_tables
from alibi_fairseq.paper.item_table import item_table
from alibi_fairseq.paper.report_data import ReportData
from alibi_fairseq.paper.scale import SCALES
from alibi_fairseq.paper.trainings import CURVE_UPDATES

PAPER_DATASET = SimpleNamespace(is_paper_corpus=True)


def table_without_ours(item: str) -> str:
    """Return the table of an item before any of our runs."""
    return item_table(item, [], SCALES["paper"], PAPER_DATASET)


def perplexities_of_paper(text: str, model: str) -> list[str]:
    """Return the paper's column of a model in the first grid of a text."""
    headers, *rows = cells_of(text)
    column = headers.index(f"{model}: paper")
    perplexities = []
    for row in rows:
        if len(row) != len(headers):
            break  # the next grid
        perplexities.append(row[column])
    return perplexities


@pytest.mark.parametrize(
    ("item", "model"),
    [
        ("table02", "T5 bias, L=512"),
        ("table03", "T5 bias, L=1024"),
        ("table04", "T5 bias, L=3072"),
    ],
)
def test_reproduce_and_report_print_out_of_memory(item, model):
    statuses = [measurement.status for measurement in published.measurements(item)]
    assert statuses.count("OOM") in (3, 4)
    perplexities = perplexities_of_paper(table_without_ours(item), model)
    assert perplexities.count("OOM") == statuses.count("OOM")
    assert perplexities == perplexities_of_paper(report_tables.table(item, ReportData()), model)


def test_unprinted_points_of_curves_are_dashes():
    rows = cells_of(table_without_ours("figure05"))
    paper_lines = {row[0]: row[2:] for row in rows if row[1] == "paper"}
    for updates in CURVE_UPDATES[:-1]:
        name = f"ALiBi, L=1024, {updates / 50_000:.1%} trained"
        assert set(paper_lines[name]) == {"–"}
