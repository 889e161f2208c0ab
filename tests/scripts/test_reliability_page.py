"""docs/reliability.md has the tables that its results make."""

from __future__ import annotations

import importlib.util
import json

import pytest
from commands import ROOT
from results_documents import cells_of, document


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


def test_what_no_test_noticed_is_shown(page, tmp_path, monkeypatch):
    """Parts count by their places, what survived with its reason or without."""

    def cell(part: str, number: int, at_first: str, outcome: str) -> dict:
        case = {"name": f"{part}.py:{number} number", "baseline": None, "ratio": None, "seed": 1}
        shown = {"before": f"a | {number}", "after": f"a | {number + 1}"}
        places = {"part": part, "places": {"small": 10, "large": 90}[part]}
        return {**case, **shown, **places, "at_first": at_first, "outcome": outcome}

    found = {
        "small": [cell("small", 1, "survived", "survived"), cell("small", 2, "caught", "caught")],
        "large": [cell("large", 1, "survived", "timed out"), cell("large", 2, "caught", "caught")],
    }
    (tmp_path / "mutation").mkdir()
    for part, cells in found.items():
        text = json.dumps(document(*cells, kind="benchmark"))
        (tmp_path / "mutation" / f"{part}.json").write_text(text)
    reason = {"name": "small.py:7 number", "before": "a | 1", "after": "a | 2", "reason": "unused"}
    (tmp_path / "equivalent.json").write_text(json.dumps([reason]))
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    rows = {row[1]: row for row in cells_of(page.mutation())}
    shares = {part: [share.split("%")[0] for share in rows[part][5:]] for part in (*found, "all")}
    assert shares["small"] == ["50", "100", "50", "100"]
    assert shares["large"] == ["50", "50", "100", "100"]
    assert shares["all"] == ["50", "55", "95", "100"]  # such as 0.1 · 50 % + 0.9 · 100 %
    assert rows["all"][2:5] == ["100", "4", "1"]
    (survivor,) = [line for line in page.survivors().splitlines() if "small.py:1" in line]
    assert "unused" in survivor and "a \\| 2" in survivor
