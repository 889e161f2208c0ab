"""A training run writes what it measured, and a resumed run writes what an undisturbed one does."""

from __future__ import annotations

import json
import logging

import pytest
from fairseq_runs import run_eval_lm, run_train, write_corpus

from alibi_fairseq.results.results_file import load_results_file
from alibi_fairseq.results.schema import TRAINING_FILE

FLAGS = (
    *("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64"),
    *("--validate-interval-updates", "10", "--position-method", "alibi"),
)
#: What a machine's load or a restart may change.
TIMES = ("hours", "tokens_per_second", "peak_memory_mb")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=200)


def run(data, folder, updates, *flags):
    run_train(data, folder, *FLAGS, "--max-update", str(updates), *flags)
    return load_results_file(folder / TRAINING_FILE)


def test_each_validation_adds_record(data, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        document = run(data, tmp_path / "run", 20, "--log-format", "json")
    assert document["kind"] == "training" and document["corpus"] == data.name
    assert document["provenance"]["seed"] == 5 and document["provenance"]["data_sha256"]
    cells = document["cells"]
    assert [cell["updates"] for cell in cells] == [10, 20]
    assert [cell["trained_tokens"] for cell in cells] == [10 * 64, 20 * 64]
    logged = [json.loads(record.message) for record in caplog.records if record.name == "valid"]
    for cell, line in zip(cells, logged, strict=True):
        assert cell["loss_bits"] == pytest.approx(float(line["valid_loss"]), abs=6e-4)
    for cell in cells:
        assert (cell["model"], cell["position_method"]) == ("alibi_lm", "alibi")
        assert (cell["train_length"], cell["length"], cell["subset"]) == (16, 16, "valid")
        assert cell["tokens"] == 200 and cell["peak_memory_mb"] > 10
        assert cell["tokens_per_second"] > 0 and "gpu_hours" not in cell
    assert cells[0]["hours"] < cells[1]["hours"]
    assert f"num. shared model params: {cells[0]['parameters']:,} " in caplog.text
    # fairseq's own evaluator, on the checkpoint of the last validation
    flags = ("--tokens-per-sample", "16", "--sample-break-mode", "none", "--max-tokens", "64")
    measured = run_eval_lm(
        data, tmp_path / "run" / "checkpoint_last.pt", "--gen-subset", "valid", *flags
    )
    assert cells[-1]["loss_bits"] == pytest.approx(float(measured["loss"]), abs=1e-4)


def test_resumed_run_continues_results_file(data, tmp_path):
    whole = run(data, tmp_path / "whole", 30)
    parts = run(data, tmp_path / "parts", 13)
    assert [cell["updates"] for cell in parts["cells"]] == [10, 13]
    resumed = run(data, tmp_path / "parts", 30)
    assert [cell["updates"] for cell in resumed["cells"]] == [10, 13, 20, 30]
    same = [cell for cell in resumed["cells"] if cell["updates"] != 13]
    for one, other in zip(whole["cells"], same, strict=True):
        assert {k: v for k, v in one.items() if k not in TIMES} == {
            k: v for k, v in other.items() if k not in TIMES
        }
    hours = [cell["hours"] for cell in resumed["cells"]]
    assert hours == sorted(hours) and hours[0] > 0


def test_run_from_other_weights_starts_new_record(data, tmp_path):
    run(data, tmp_path / "first", 10)
    restore = ("--finetune-from-model", str(tmp_path / "first" / "checkpoint_last.pt"))
    second = run(data, tmp_path / "second", 10, *restore)
    assert [cell["trained_tokens"] for cell in second["cells"]] == [640]


def test_record_after_stop_matches_checkpoint(data, tmp_path):
    """Validations after the last checkpoint are measured again, not kept twice."""
    folder = tmp_path / "run"
    run(data, folder, 15, "--save-interval-updates", "5", "--keep-interval-updates", "-1")
    early = folder / "checkpoint_1_5.pt"
    early.replace(folder / "checkpoint_last.pt")
    document = run(data, folder, 15)
    assert [cell["updates"] for cell in document["cells"]] == [5, 10, 15]
    assert [cell["trained_tokens"] for cell in document["cells"]] == [320, 640, 960]
