"""A table and a figure of the paper that are added as data."""

from __future__ import annotations

import shutil

import pytest
from figure_texts import figure_texts
from results_documents import as_ours, cells_of, document, figures_as_svg

from alibi_fairseq.cli import main
from alibi_fairseq.paper import items, published, trainings
from alibi_fairseq.results.file import save

INDEX = """\
table16,Table 16,26,wikitext-103,valid,Two methods at two lengths,,,,,,,made up for this test
figure12,Figure 12,,wikitext-103,valid,two methods,table16,,,lengths,,table16,made up for this test
"""
NUMBERS = """position_method,train_length,length,stride,perplexity
alibi,512,1024,1024,19.1
alibi,512,3072,3072,18.4
sinusoidal,512,1024,1024,25.0
"""


@pytest.fixture
def new_table(tmp_path, monkeypatch):
    """Add a table to a copy of the paper's numbers."""
    folder = tmp_path / "paper"
    shutil.copytree(published.FOLDER, folder)
    (folder / "table16.csv").write_text(NUMBERS, encoding="utf-8")
    with (folder / "index.csv").open("a", encoding="utf-8") as index:
        index.write(INDEX)
    cached = (
        *(published.rows, published.measurements),
        *(items.items, trainings.plan_evaluations),
    )
    with monkeypatch.context() as patch:
        patch.setattr(published, "FOLDER", folder)
        for function in cached:
            function.cache_clear()
        yield
    for function in cached:
        function.cache_clear()


def test_new_table_is_planned_from_its_numbers(new_table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "table16", "--dry-run", "--gpus", "1"]) == 0
    printed = capsys.readouterr().out
    trained = [line for line in printed.splitlines() if " train " in line]
    assert ["--position-method alibi" in line for line in trained] == [True, False]
    assert all("--tokens-per-sample 512" in line for line in trained)
    assert "--lengths 1024,3072 --strides full --subset valid" in printed
    assert "2 runs of" in printed
    assert items.find_items("all")[-2:] == ("table16", "figure12")


@pytest.mark.ci
def test_new_table_is_reported_next_to_results(new_table, tmp_path):
    printed = items.items()["table16"].measurements[1]
    ours = as_ours(printed, perplexity=18.5, architecture="alibi_lm_wiki103", updates=286_000)
    save(document(ours, corpus="wikitext-103"), tmp_path / "ours.json")
    with figures_as_svg():
        assert main(["report", str(tmp_path / "ours.json"), "--out", str(tmp_path / "out")]) == 0
    rows = cells_of((tmp_path / "out" / "tables" / "table16.md").read_text())
    assert rows[1:4] == [
        ["ALiBi, L=512", "paper", "19.10", "18.40"],
        ["", "ours", "missing", "18.50"],
        ["", "difference", "–", "+0.10 ="],
    ]
    assert rows[4] == ["Sinusoidal, L=512", "paper", "25.00", "–"]
    texts = figure_texts(tmp_path / "out" / "figures" / "figure12.svg")
    assert "WikiText-103, validation" in texts
    assert "ALiBi (paper)" in texts
