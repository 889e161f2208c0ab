"""The benchmark of the data preparation, and the figures that were committed with it."""

from __future__ import annotations

from pathlib import Path

from alibi_fairseq.results.schema import load_document
from benchmarks.data_prep_page import page

RESULTS = Path(__file__).resolve().parents[2] / "results" / "data-prep" / "cc100-roberta.json"


def test_the_page_holds_the_figures_of_its_results():
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == page(load_document(RESULTS))
