"""docs/reliability.md has the tables that its results make."""

from __future__ import annotations

import importlib.util
import json

import pytest
from commands import ROOT
from results_documents import document


@pytest.fixture
def page():
    spec = importlib.util.spec_from_file_location("page", ROOT / "scripts" / "reliability_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(page):
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text) == text


def test_what_was_lost_is_shown(page, tmp_path, monkeypatch):
    case = {"name": "soak", "baseline": None, "ratio": None, "work": "training", "trial": 0}
    cell = {**case, "fault": "SIGKILL", "during": "update", "lost_updates": 3, "same_bits": False}
    other = {**cell, "trial": 1, "lost_updates": 4, "same_bits": True, "problems": "exit codes [1]"}
    cells = [{**cell, "problems": ""}, other]
    (tmp_path / "soak").mkdir()
    made = document(*cells, kind="benchmark")
    (tmp_path / "soak" / "training.json").write_text(json.dumps(made))
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    (row,) = [line for line in page.soak().splitlines() if "SIGKILL" in line]
    words = [word.strip() for word in row.strip("|").split("|")]
    assert words == ["training", "SIGKILL", "2", "update 2", "4", "1", "1"]
