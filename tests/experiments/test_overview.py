"""The page with every table and figure of the paper."""

from __future__ import annotations

import re

import pytest
from stand_ins import Commands

from alibi_fairseq.experiments import command, paper_tables
from alibi_fairseq.experiments.paper_data import Data
from alibi_fairseq.experiments.paper_tables import PaperTables
from alibi_fairseq.experiments.runner import carry_out
from alibi_fairseq.experiments.torchrun import Machine
from alibi_fairseq.paper import tables
from alibi_fairseq.paper.recipe import SMOKE


@pytest.fixture
def page(tmp_path, monkeypatch) -> str:
    monkeypatch.setattr(command, "execute", Commands())
    monkeypatch.setattr(paper_tables, "write_report", lambda *_, **__: None)
    (tmp_path / "text").mkdir()
    for name in ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"):
        (tmp_path / "text" / name).write_text("some words\n")
    (tmp_path / "books.txt").write_text("some words\n")
    paths = {"wikitext-103": "text", "bookcorpus": "books.txt", "cc100-roberta": "books.txt"}
    work, machine, trainings = (
        tmp_path / "work",
        Machine(1, cpu=True),
        tables.trainings_for(tables.ITEMS),
    )
    data = {name: Data(work, name, tmp_path / path, True, SMOKE) for name, path in paths.items()}
    experiment = PaperTables(work, tables.ITEMS, trainings, data, SMOKE, machine, True)
    assert carry_out(experiment, parallel=1) == 0
    return (experiment.page.parent / "smoke.md").read_text()


def test_every_table_and_figure_has_numbers_or_a_reason(page):
    sections = dict(re.findall(r"^## (\w+ \d+)\b(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE))
    assert set(sections) == {
        *(f"Table {number}" for number in range(1, 16)),
        *(f"Figure {number}" for number in range(1, 12)),
    }
    without = {name for name, text in sections.items() if "ours (smoke)" not in text}
    assert without == {"Table 1", "Figure 2", "Figure 3", "Figure 7", "Figure 10"}
    for name in without:
        assert "measures them on a GPU" in sections[name] or "holds no data" in sections[name]
    for name in set(sections) - without:
        assert "missing" not in sections[name], name
        assert "Not a replication" in sections[name]
