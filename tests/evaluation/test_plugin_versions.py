"""Evaluations, trainings, and reports of a model whose plugin was edited."""

from __future__ import annotations

import json

import pytest
from commands import SHORT, in_process
from results_documents import document, evaluation_cell

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation import sweep_results
from alibi_fairseq.results import labels, plugin_versions
from alibi_fairseq.results.measurements import measurements_of
from alibi_fairseq.results.model_groups import average_by_model

FIRST = "a" * 64
SECOND = "b" * 64


@pytest.fixture(autouse=True)
def _new_process():
    plugin_versions.warn_of_unknown_version.cache_clear()
    sweep_results._warn_once.cache_clear()


@pytest.fixture
def plugin(monkeypatch):
    """Return a function that makes ``alibi`` a method of a plugin of a version."""

    def set_version(version):
        monkeypatch.setattr(labels, "plugin_sha256", lambda names: version)
        monkeypatch.setattr(sweep_results, "plugin_sha256_of_record", lambda name: version)

    return set_version


def without_version(path):
    """Remove the versions from a results file, as in earlier results."""
    results = json.loads(path.read_text())
    for record in results["cells"]:
        record.pop("plugin_sha256")
    path.write_text(json.dumps(results))


def test_evaluation_is_repeated_after_an_edit(sweep, plugin, tmp_path, caplog):
    plugin(FIRST)
    (before,) = sweep()
    assert before["plugin_sha256"] == FIRST
    assert sweep() == [before]  # not measured again
    plugin(SECOND)
    (after,) = sweep()
    assert after["plugin_sha256"] == SECOND
    records = json.loads((tmp_path / "results.json").read_text())["cells"]
    assert records == [before, after]
    plugin(FIRST)
    assert sweep() == [before]
    assert "not compared" not in caplog.text


def test_unknown_version_is_not_compared(sweep, plugin, tmp_path, caplog):
    plugin(FIRST)
    sweep(lengths=(16, 24))
    without_version(tmp_path / "results.json")
    for record in sweep(lengths=(16, 24)):  # not measured again
        assert "plugin_sha256" not in record
    assert caplog.text.count("do not record the version of its plugin") == 1


def seed(number, version=None, **changes):
    """Return a result record of a seed of a plugin's method."""
    facts = {"position_method": "root", "seed": number, "checkpoint": f"{number}.pt"}
    if version:
        facts["plugin_sha256"] = version
    return evaluation_cell(**facts, **changes)


def test_versions_are_not_averaged_as_seeds():
    measurements = measurements_of(document(seed(1, FIRST), seed(2, FIRST), seed(3, SECOND)))
    models = average_by_model(measurements)
    assert [model.variant for model in models] == ["plugin aaaaaaaa", "plugin bbbbbbbb"]
    assert [model.measurements[0].seeds for model in models] == [2, 1]


def test_unknown_version_is_averaged_with_the_only_one(caplog):
    measurements = measurements_of(document(seed(1, FIRST), seed(2), seed(3)))
    (model,) = average_by_model(measurements)
    assert model.measurements[0].seeds == 3
    assert model.variant == ""
    assert caplog.text.count("do not record the version of its plugin") == 1


def test_unknown_version_is_averaged_with_none_of_several():
    measurements = measurements_of(document(seed(1, FIRST), seed(2, SECOND), seed(3)))
    variants = [model.variant for model in average_by_model(measurements)]
    assert variants == ["plugin aaaaaaaa", "plugin bbbbbbbb", "plugin of unknown version"]


def train(data_bin, folder, updates):
    in_process("train", data_bin, *SHORT, "--max-update", updates, "--save-dir", folder)


def test_training_does_not_resume_after_an_edit(data_bin, plugin, tmp_path, caplog):
    plugin(FIRST)
    train(data_bin, tmp_path, 2)
    train(data_bin, tmp_path, 3)
    plugin(SECOND)
    with pytest.raises(UserInputError, match="The plugin of this model was edited"):
        train(data_bin, tmp_path, 4)
    (record, *_) = json.loads((tmp_path / "training.json").read_text())["cells"]
    assert record["plugin_sha256"] == FIRST


def test_training_of_an_earlier_version_resumes(data_bin, plugin, tmp_path, caplog):
    plugin(None)
    train(data_bin, tmp_path, 2)
    plugin(FIRST)
    train(data_bin, tmp_path, 3)
    assert caplog.text.count("do not record the version of its plugin") == 1


def test_evaluation_with_another_version_than_training_warns(
    data_bin, sweep, plugin, tmp_path, caplog
):
    plugin(FIRST)
    train(data_bin, tmp_path, 2)
    checkpoint = tmp_path / "checkpoint_last.pt"
    sweep(checkpoint, data=data_bin, out="first")
    assert "another version of its plugin" not in caplog.text
    plugin(SECOND)
    sweep(checkpoint, data=data_bin, out="second")
    assert caplog.text.count("was trained with another version of its plugin") == 1
