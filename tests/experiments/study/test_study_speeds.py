"""The speeds of a study's models, measured on small ones and read again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from fairseq_runs import write_corpus

from alibi_fairseq.cli import main
from alibi_fairseq.experiments.study import data as study_data
from alibi_fairseq.experiments.study import speeds
from alibi_fairseq.experiments.study.outcomes import load_speeds, speed_up
from alibi_fairseq.results.schema import load_document

DESCRIPTION = {
    "title": "Speeds",
    "corpora": [
        {"name": "tales", "layout": "text", "documents": "empty-lines", "vocabulary": 20}
        | {"train": 400, "test": [2, 100]}
    ],
    "training": {"updates": 10, "tokens_per_update": 64, "lr": 0.002},
    "tests": {
        **{"factors": [1], "beyond": [], "longest": 64},
        **{"sliding": [], "sliding_longest": 32, "sliding_tokens": 5},
    },
    "parts": [
        {"corpus": "tales", "methods": ["alibi", "sinusoidal"], "train_lengths": [16, 32]},
        {"corpus": "tales", "methods": ["alibi"], "train_lengths": [16], "seeds": [2]},
    ],
}


@pytest.fixture
def tales(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speeds, "ROUNDS", 3)
    data = tmp_path / "tales"
    data.mkdir()
    write_corpus(data, train=400, valid=100, test=100)
    for name in ("prepare", "prepared"):
        monkeypatch.setattr(study_data, name, lambda corpus, source, folder: data)
    Path("study.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    return ["study", "study.yaml", "--speeds", "--corpus", "tales=tales"]


def test_every_method_and_length_is_timed_once_and_nothing_is_trained(tales):
    assert main([*tales, "--results", "results"]) == 0
    document = load_document("results/speeds/tales.json")
    cells = document["cells"]
    order = [(cell["position_method"], cell["train_length"]) for cell in cells]
    assert order == [("alibi", 16), ("sinusoidal", 16), ("alibi", 32), ("sinusoidal", 32)]
    for cell, baseline in zip(cells, [cells[1], cells[1], cells[3], cells[3]]):
        seconds, others = (np.array(each["round_seconds"]) for each in (cell, baseline))
        assert len(seconds) == 3 and (seconds > 0).all() and cell["tokens"] == 64
        assert cell["tokens_per_second"] == pytest.approx(64 / np.median(seconds), rel=1e-2)
        assert cell["ratio"] == pytest.approx(np.median(others / seconds), rel=1e-2)
    assert document["provenance"]["threads"] == 1
    assert [path.name for path in Path("results").iterdir() if path.suffix == ""] == ["speeds"]
    found = load_speeds(Path("results"))
    assert set(found) == {("tales", *key) for key in order}
    assert found["tales", "alibi", 16] == pytest.approx(64 / np.array(cells[0]["round_seconds"]))


def test_patterns_choose_what_is_timed(tales):
    assert main([*tales, "--results", "results", "--cells", "*-32-*"]) == 0
    cells = load_document("results/speeds/tales.json")["cells"]
    assert {cell["train_length"] for cell in cells} == {32}


@pytest.mark.parametrize("flags", [["--hours", "1", "--corpus", "tales=tales"], []])
def test_what_speeds_cannot_take_is_one_sentence(tales, flags, capsys):
    assert main(["study", "study.yaml", "--speeds", *flags]) == 2
    assert "--speeds trains nothing: it needs --corpus" in capsys.readouterr().err


def test_the_ratio_within_a_round_counts():
    machine = np.array([1.0, 0.1, 0.5, 1.0, 0.7])
    found = speed_up(120 * machine, 100 * machine)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.2, 0.2))
    wide = speed_up(np.array([50.0, 100, 200, 100, 100]), np.full(5, 100.0))
    assert wide.value == pytest.approx(0) and wide.low < -0.2 and wide.high > 0.2
