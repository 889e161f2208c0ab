"""Other methods, trained with the configuration of a study."""

from __future__ import annotations

from pathlib import Path

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment.config_files import from_mapping, load_config
from alibi_fairseq.experiment.plan import plan_from_folder
from alibi_fairseq.experiment.planned_evaluations import plan_sweeps
from alibi_fairseq.files import read_yaml
from studies.config import StudyConfig

ROOT = Path(__file__).parents[2]
HOUR = ROOT / "studies" / "gpu" / "hour.yaml"
WITH_TESTS = [path for path in sorted(ROOT.glob("studies/*/*.yaml")) if "tests" in read_yaml(path)]


def test_configuration_of_another_method_has_the_settings_of_the_study(tmp_path):
    config = load_config(HOUR, StudyConfig)
    other = config.with_methods(["kerple"], None)
    models = other.all_models()
    assert [model.seed for model in models] == [1, 2, 3]
    assert {model.train_length for model in models} == {512}
    ours = plan_from_folder(config, tmp_path).runs[0].request["options"]
    theirs = plan_from_folder(other, tmp_path).runs[0]
    assert [word if word != "alibi" else "kerple" for word in ours] == theirs.request["options"]
    assert len(theirs.after) == 3


def test_methods_with_one_name_are_rejected():
    config = load_config(HOUR, StudyConfig)
    assert config.with_methods(["alibi/alibi_slopes=even", "kerple"], None).all_models()
    named = "can't tell 'rotary' and 'rotary/attention_window=256' apart"
    with pytest.raises(UserInputError, match=named):
        config.with_methods(["rotary", "rotary/attention_window=256"], None)


@pytest.mark.parametrize("name", ["primary", "secondary"])
def test_added_method_is_trained_as_alibi_is_where_groups_differ(name):
    values = read_yaml(ROOT / "studies" / "small_models" / f"{name}.yaml")
    values["tests"] = {"corpus": "wikipedia", "train_length": 128}
    config = from_mapping(values, StudyConfig)
    (group,) = config.with_methods(["kerple"], None).models
    assert group.lr == config.models[0].lr
    assert len(group.lr) > 1  # in primary.yaml, sinusoidal embeddings have another one
    models = config.with_methods(["kerple"], None).all_models()
    assert {model.corpus.name for model in models} == {"wikipedia"}


@pytest.mark.parametrize("path", WITH_TESTS, ids=lambda path: path.stem)
def test_added_method_is_evaluated_at_the_lengths_of_alibi(path):
    """Also where they differ between groups, and without overlap, which only ALiBi's tests need."""
    config = load_config(path, StudyConfig)
    windows = evaluated_windows(config.with_methods(["kerple"], None), "kerple")
    assert (config.tests.train_length,) * 2 in windows
    of_alibi = evaluated_windows(config, "alibi")
    assert windows == {(length, stride) for length, stride in of_alibi if stride == length}


def evaluated_windows(config, method):
    """Return lengths and strides at which the models of the tests of a method are evaluated."""
    windows = set()
    for model in config.all_models():
        is_in_tests = model.train_length == config.tests.train_length
        if is_in_tests and model.method.notation == method:
            for sweep in plan_sweeps(model):
                windows.update(sweep.config.windows())
    return windows
