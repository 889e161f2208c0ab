"""Results of an evaluation step that exist already."""

import shutil
from pathlib import Path

import pytest
import yaml
from fakes import Commands
from results_documents import document, evaluation_record

from alibi_fairseq.cli import main
from alibi_fairseq.compare.comparison_runs import list_runs
from alibi_fairseq.compare.config_files import from_mapping
from alibi_fairseq.evaluation.option_types import find_device
from alibi_fairseq.results.files import save_results_file
from alibi_fairseq.runs import child_process


def values_of(data) -> dict:
    """Return the configuration of a comparison of one model on prepared data."""
    return {
        "corpora": [{"name": "mine", "data": str(data)}],
        "methods": "alibi",
        "train_lengths": 64,
        "eval_lengths": 64,
    }


def evaluated(values: dict, folder: Path, **fields):
    """Return the run of a comparison after its evaluation, and the step of the evaluation."""
    (model,) = list_runs(from_mapping(values), folder)
    run = model.run
    (step,) = run.eval_steps
    run.folder.mkdir(parents=True, exist_ok=True)
    run.checkpoint_path(run.updates).write_bytes(b"weights")
    run.training_marker(run.updates).write()
    records = []
    for case in step.cases:
        record = evaluation_record(
            **case._asdict(),
            checkpoint=str(run.checkpoint_path(run.updates)),
            checkpoint_sha256=run.training_marker(run.updates).output_sha256,
            precision="fp32",
            device=find_device("auto").type,
            **fields,
        )
        records.append(record)
    save_results_file(document(*records), run.folder / "results.json")
    step._marker(run.model_of(step)).write()
    return run, step


def test_edited_documents_are_evaluated_again(data_bin, tmp_path):
    data = Path(shutil.copytree(data_bin, tmp_path / "data-bin"))
    (data / "documents.json").write_text('{"valid": [0, 20]}')
    by_document = {"per_document": "empty-lines"}
    run, step = evaluated(
        values_of(data) | by_document, tmp_path / "documents", documents="empty-lines"
    )
    plain_run, plain_step = evaluated(values_of(data), tmp_path / "plain")
    assert step.is_complete(run.model_of(step))
    (data / "documents.json").write_text('{"valid": [0, 30]}')
    assert not step.is_complete(run.model_of(step))
    assert step.is_outdated(run.model_of(step))
    assert plain_step.is_complete(plain_run.model_of(plain_step))


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"score_from": 32}, {"score_from": 32}),
        ({"per_document": "titles"}, {"documents": "titles"}),
    ],
)
def test_results_that_another_step_replaced_are_not_complete(data_bin, tmp_path, settings, fields):
    """Its marker has another name, because the order of the strides differs."""
    values = values_of(data_bin)
    run, step = evaluated(values | {"strides": ["full", 8]}, tmp_path)
    assert step.is_complete(run.model_of(step))
    _, other_step = evaluated(values | settings | {"strides": [8, "full"]}, tmp_path, **fields)
    assert other_step.is_complete(run.model_of(other_step))
    assert not step.is_complete(run.model_of(step))
    assert step.is_outdated(run.model_of(step))


def test_results_of_another_device_are_complete(data_bin, tmp_path, monkeypatch):
    run, step = evaluated(values_of(data_bin), tmp_path)
    monkeypatch.setattr("alibi_fairseq.evaluation.config.device_type", lambda name: "elsewhere")
    assert step.is_complete(run.model_of(step))


def test_results_of_other_split_or_tokens_are_outdated(data_bin, tmp_path):
    values = values_of(data_bin)
    (on_valid,) = list_runs(from_mapping({**values, "subset": "valid"}), tmp_path)
    (on_test,) = list_runs(from_mapping({**values, "subset": "test"}), tmp_path)
    run = on_valid.run
    run.folder.mkdir(parents=True)
    run.checkpoint_path(run.updates).write_bytes(b"weights")
    run.training_marker(run.updates).write()
    measured = evaluation_record(
        length=64,
        subset="valid",
        checkpoint=str(run.checkpoint_path(run.updates)),
        checkpoint_sha256=run.training_marker(run.updates).output_sha256,
        precision="fp32",
        device=find_device("auto").type,
    )
    save_results_file(document(measured), run.folder / "results.json")
    settings = {**values, "subset": "valid", "score_from": 32, "strides": 8}
    (on_other_tokens,) = list_runs(from_mapping(settings), tmp_path)
    (valid_step,) = run.eval_steps
    (test_step,) = on_test.run.eval_steps
    assert not valid_step.is_outdated(run.model_of(valid_step))
    assert test_step.is_outdated(on_test.run.model_of(test_step))
    (other_step,) = on_other_tokens.run.eval_steps
    assert other_step.is_outdated(run.model_of(other_step))


def test_evaluations_as_trained_and_as_variant_are_both_kept(data_bin, tmp_path, monkeypatch):
    """They have the same checkpoint, splits, and strides."""
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    config = {
        "corpora": [{"name": "mine", "data": str(data_bin)}],
        "methods": "alibi",
        "train_lengths": 16,
        "eval_lengths": 16,
        "updates": 4,
        "tokens_per_update": 128,
        "variants": {"alibi": {"limited": {"attention_window": 8}}},
    }
    path = tmp_path / "comparison.yaml"
    path.write_text(yaml.safe_dump(config))
    command = ["compare", str(path), "--out", str(tmp_path / "out"), "--parallel", "1"]
    assert main(command) == 0
    assert commands.ran == ["train", "eval", "eval"]
    assert main(command) == 0
    assert commands.ran == ["train", "eval", "eval"]
