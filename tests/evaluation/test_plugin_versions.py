"""Evaluations, trainings, and reports of a model whose plugin was edited."""

from __future__ import annotations

import pytest
from commands import SHORT, in_process
from results_documents import evaluation_record, results_of

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation import checkpoint as evaluated_checkpoint
from alibi_fairseq.evaluation import sweep as evaluation_sweep
from alibi_fairseq.plugin import training_record
from alibi_fairseq.reporting.rows import build_rows
from alibi_fairseq.results.file import load

FIRST = "a" * 64
SECOND = "b" * 64


@pytest.fixture
def plugin(trained, monkeypatch):
    """Return a function that makes ``alibi`` a method of a plugin of a version."""
    trained("alibi")  # else it would be a model of the plugin in all later tests

    def set_version(version):
        for module in (evaluated_checkpoint, training_record, evaluation_sweep):
            monkeypatch.setattr(module, "plugin_sha256", lambda names: version)

    return set_version


def evaluated_version(result) -> str | None:
    """Return the version of the plugin with which a model was evaluated."""
    return result.reading.overrides.get("plugin", result.series.settings.get("plugin"))


def test_evaluation_is_repeated_after_an_edit(sweep, plugin, tmp_path, caplog):
    plugin(FIRST)
    (before,) = sweep()
    assert evaluated_version(before) == FIRST
    assert sweep() == [before]  # not measured again
    plugin(SECOND)
    (after,) = sweep()
    assert evaluated_version(after) == SECOND
    records = load(tmp_path / "results.json").results
    assert records == [before, after]
    plugin(FIRST)
    assert sweep() == [before]


def seed(number, version=None, **changes):
    """Return a result record of a seed of a plugin's method."""
    facts = {"method": "root", "seed": number, "checkpoint": f"{number}.pt"}
    if version:
        facts["plugin_sha256"] = version
    return evaluation_record(**facts, **changes)


def test_versions_are_not_averaged_as_seeds():
    models = build_rows(results_of(seed(1, FIRST), seed(2, FIRST), seed(3, SECOND)))
    assert [model.variant for model in models] == ["plugin aaaaaaaa", "plugin bbbbbbbb"]
    assert [model.points[0].seeds for model in models] == [2, 1]


def test_unknown_version_is_averaged_with_none_of_several():
    results = results_of(seed(1, FIRST), seed(2, SECOND), seed(3))
    variants = [model.variant for model in build_rows(results)]
    assert variants == ["plugin aaaaaaaa", "plugin bbbbbbbb", "plugin none"]


def train(data_bin, folder, updates):
    in_process("train", data_bin, *SHORT, "--max-update", updates, "--save-dir", folder)


@pytest.mark.ci
def test_training_does_not_resume_after_an_edit(data_bin, plugin, tmp_path, caplog):
    plugin(FIRST)
    train(data_bin, tmp_path, 2)
    train(data_bin, tmp_path, 3)
    plugin(SECOND)
    with pytest.raises(UserInputError, match="The plugin of this model was edited"):
        train(data_bin, tmp_path, 4)
    (record, *_) = load(tmp_path / "training.json").results
    assert record.series.settings["plugin"] == FIRST


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


@pytest.fixture
def rotary_of_plugin(monkeypatch):
    """Make ``rotary`` a method of a plugin."""
    for module in (evaluated_checkpoint, evaluation_sweep):
        monkeypatch.setattr(
            module, "plugin_sha256", lambda names: FIRST if "rotary" in names else None
        )


def test_override_by_a_method_of_a_plugin_is_no_other_version(
    trained, sweep, rotary_of_plugin, caplog
):
    (result,) = sweep(trained("alibi"), overrides={"position_method": "rotary"})
    assert evaluated_version(result) == FIRST
    assert "another version of its plugin" not in caplog.text


def test_spaces_in_an_override_do_not_hide_a_plugin(trained, sweep, rotary_of_plugin):
    (result,) = sweep(trained("alibi"), overrides={"position_method": "alibi, rotary"})
    assert evaluated_version(result) == FIRST
