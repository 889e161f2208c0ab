"""A comparison's report is written again as soon as anything that it shows may have changed."""

from __future__ import annotations

import json

import pytest

from alibi_fairseq.compare import report_marker as marker_module
from alibi_fairseq.compare.comparison_runs import list_runs
from alibi_fairseq.compare.config_files import from_mapping
from alibi_fairseq.compare.report_marker import report_marker
from alibi_fairseq.results.files import REPORT_FILES


@pytest.fixture
def make_marker(tmp_path):
    """Return a function that makes the marker of a written report in ``tmp_path``."""
    (tmp_path / "data").mkdir()
    values = {"corpora": [{"name": "text", "data": str(tmp_path / "data")}], "methods": "alibi"}
    (model,) = list_runs(from_mapping(values), tmp_path)
    model.run.folder.mkdir(parents=True)
    (model.run.folder / "training.json").write_text("trained")
    (step,) = model.run.eval_steps
    step.results_path.write_text("evaluated")
    (tmp_path / "table.md").write_text("table")
    (tmp_path / REPORT_FILES).write_text(json.dumps(["table.md"]))

    def make(**changes):
        return report_marker(from_mapping({**values, **changes}), tmp_path, False, [model])

    make().write(["table.md"])
    return make


def test_unchanged_report_is_kept(make_marker):
    assert make_marker().holds()
    assert make_marker().result == ["table.md"]


@pytest.mark.parametrize("name", ["training.json", "results.json", "table.md"])
def test_report_follows_its_files(make_marker, tmp_path, name):
    (path,) = tmp_path.rglob(name)
    path.write_text("changed")
    assert not make_marker().holds()


def test_report_follows_its_settings(make_marker):
    assert not make_marker(title="Another title").holds()


def test_report_follows_the_code(make_marker, monkeypatch):
    monkeypatch.setattr(marker_module, "code_sha256", lambda: "0" * 64)
    assert not make_marker().holds()
