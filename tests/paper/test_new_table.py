"""A table of the paper that is added as data."""

from __future__ import annotations

import shutil

import pytest

from alibi_fairseq.cli import main
from alibi_fairseq.paper import published, trainings

INDEX = "table16,Table 16,26,wikitext-103,valid,Two methods at two lengths,made up for this test\n"
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
        *(trainings.sources, trainings.trained_items, trainings.evaluations_of),
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
    assert trainings.find_items("all")[:15][-1] == "table16"
