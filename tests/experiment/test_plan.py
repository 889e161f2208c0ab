"""Plan of an experiment: a function of its description, the data, and the results of trials."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from alibi_fairseq.completion_marker import write_settings
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment import plan as plan_module
from alibi_fairseq.experiment.comparison import Comparison
from alibi_fairseq.experiment.config_files import as_mapping, from_mapping
from alibi_fairseq.experiment.plan import DataFacts, Plan, plan
from alibi_fairseq.experiment.rate_choice import TrialResult
from alibi_fairseq.options import option
from alibi_fairseq.positions import METHODS, PositionMethod

FOLDER = Path("nowhere")
DATA = Path("data-bin")
CORPUS = {"name": "text", "data": str(DATA)}
TUNED = {
    "corpora": [CORPUS],
    "methods": ["alibi", "none"],
    "train_lengths": 64,
    "seeds": [1, 2],
    "lr": [0.001, 0.002],
}
FACTS = DataFacts("a" * 64, "b" * 64, 1000, {("valid",): "c" * 64})


def result(loss: float | None, data_sha256: str | None = "c" * 64) -> TrialResult:
    """Return the result of a trial; None: it diverged."""
    return TrialResult(loss, None if loss is None else {"data_sha256": data_sha256})


def known_results(alibi: list, none: list) -> dict[str, TrialResult]:
    """Return the results of the trials of both methods, in the order of the rates."""
    known = {}
    for method, results in (("alibi", alibi), ("none", none)):
        for lr, found in zip((0.001, 0.002), results):
            known[f"text/{method}-64-seed1-lr{lr}"] = found
    return known


def blocked(planned: Plan) -> dict[str, str]:
    """Return the reason for each run that cannot be trained."""
    return {run.name: run.blocked for run in planned.runs if run.blocked}


def rate_of(run) -> str:
    return run.flags[run.flags.index("--lr") + 1]


def test_runs_wait_for_their_trials_only():
    config = from_mapping(TUNED)
    known = known_results([result(4.0), result(3.0)], [result(4.0)])
    planned = plan(config, FOLDER, {DATA: FACTS}, known)
    assert planned == plan(config, FOLDER, {DATA: FACTS}, known)
    waiting = {run.name: run.after for run in planned.runs}
    last = ("text/none-64-seed1-lr0.002",)
    assert waiting == {
        "text/alibi-64-seed1": (),
        "text/none-64-seed1": last,
        "text/alibi-64-seed2": (),
        "text/none-64-seed2": last,
    }
    assert [run.name for run in planned.unfinished_trials()] == [*last]
    assert len(planned.trial_runs) == 4
    assert {rate_of(run) for run in planned.runs if not run.after} == {"0.002"}
    assert blocked(planned) == {}


def test_names_do_not_depend_on_data_and_results():
    config = from_mapping(TUNED)
    known = known_results([result(4.0), result(3.0)], [result(3.0), result(None)])
    before = plan(config, FOLDER, {}, {})
    after = plan(config, FOLDER, {DATA: FACTS}, known)
    for runs, later in ((before.runs, after.runs), (before.trial_runs, after.trial_runs)):
        assert [(run.name, run.folder) for run in runs] == [(run.name, run.folder) for run in later]
    assert before.runs[0].request["train"] is None
    assert after.runs[0].request["train"] == "a" * 64
    assert [choice.lr for choice in after.choices] == [0.002, 0.001] * 2
    assert not FOLDER.exists()


@pytest.mark.parametrize(
    ("method", "flags", "name"),
    [
        ("alibi", "--alibi-slopes slopes.txt", "slopes.txt"),
        ("alibi", "--finetune-from-model=base.pt --dropout 0", "base.pt"),
        ("alibi/alibi_slopes=slopes.txt", "", "slopes.txt"),
    ],
)
def test_edited_file_of_an_option_is_another_training(tmp_path, monkeypatch, method, flags, name):
    monkeypatch.chdir(tmp_path)
    config = from_mapping({"corpora": [CORPUS], "methods": method, "train_flags": flags})
    (unnamed,) = plan(config, FOLDER, {DATA: FACTS}, {}).runs
    assert set(unnamed.request) == {"options", "train", "dictionary"}
    Path(name).write_text("0.5", encoding="utf-8")
    (run,) = plan(config, FOLDER, {DATA: FACTS}, {}).runs
    run.folder.mkdir(parents=True)
    (run.folder / run.final_checkpoint).touch()
    write_settings(run.request_file, run.request)
    run.training_marker(run.updates).write()
    assert run.is_trained
    Path(name).write_text("0.25", encoding="utf-8")
    (edited,) = plan(config, FOLDER, {DATA: FACTS}, {}).runs
    assert not edited.is_trained
    with pytest.raises(UserInputError, match=rf"different settings \(file {name} differs\)"):
        edited.check_request()


@pytest.mark.parametrize("flags", ["--log-file log.txt", "--log-file=log.txt"])
def test_log_of_a_training_does_not_count(tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    Path("log.txt").write_text("update 1", encoding="utf-8")
    config = from_mapping({"corpora": [CORPUS], "methods": "alibi", "train_flags": flags})
    (run,) = plan(config, FOLDER, {DATA: FACTS}, {}).runs
    assert set(run.request) == {"options", "train", "dictionary"}


@pytest.mark.parametrize(
    ("method", "flags", "name"),
    [
        ("alibi/alibi_distance=log", "", "log"),
        ("alibi/alibi_slopes=even", "", "even"),
        ("alibi", "--alibi-slopes 1,2", "1,2"),
        ("alibi", "--criterion cross_entropy", "cross_entropy"),
    ],
)
def test_value_that_is_also_the_name_of_a_file_does_not_count(
    tmp_path, monkeypatch, method, flags, name
):
    """A comparison may write its own output there: ``alibi-fairseq compare … > log``."""
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("training alibi", encoding="utf-8")
    config = from_mapping({"corpora": [CORPUS], "methods": method, "train_flags": flags})
    (run,) = plan(config, FOLDER, {DATA: FACTS}, {}).runs
    assert set(run.request) == {"options", "train", "dictionary"}


def test_file_of_a_plugins_option_counts(tmp_path, monkeypatch):
    @dataclass
    class Options:
        mine_table: str = option("file with a table", "")
        alibi_distance: str = option("as in alibi", "linear")

    members = {"__module__": "my_plugin", "Options": Options}
    monkeypatch.setitem(METHODS, "mine", type("Mine", (PositionMethod,), members))
    monkeypatch.setattr(plan_module, "plugin_sha256", lambda methods: "b" * 64)
    monkeypatch.chdir(tmp_path)
    for name in ("table", "log"):
        Path(name).write_text(name, encoding="utf-8")
    method = "mine/mine_table=table/alibi_distance=log"
    config = from_mapping({"corpora": [CORPUS], "methods": method})
    (run,) = plan(config, FOLDER, {DATA: FACTS}, {}).runs
    assert list(run.request["file"]) == ["table"]


def test_only_the_model_that_diverged_at_every_rate_is_blocked():
    known = known_results([result(None), result(None)], [result(3.0), result(4.0)])
    planned = plan(from_mapping(TUNED), FOLDER, {DATA: FACTS}, known)
    assert set(blocked(planned)) == {"text/alibi-64-seed1", "text/alibi-64-seed2"}
    assert "ALiBi, L=64 diverged at 0.001, 0.002" in blocked(planned)["text/alibi-64-seed1"]
    with pytest.raises(UserInputError, match="diverged"):
        planned.find("text/alibi-64-seed1").train()


def test_trials_on_another_validation_split_block_the_model():
    known = known_results([result(4.0, "d" * 64), result(3.0)], [result(3.0), result(4.0, None)])
    planned = plan(from_mapping(TUNED), FOLDER, {DATA: FACTS}, known)
    assert {name.split("-")[0] for name in blocked(planned)} == {"text/alibi"}
    unprepared = plan(from_mapping(TUNED), FOLDER, {}, known)
    assert blocked(unprepared) == {}


def test_groups_replace_shared_keys():
    values = {
        "corpora": [CORPUS, {"name": "code", "data": "code-bin"}],
        "training": {"updates": 40, "lr": 0.001},
        "evaluation": {"eval_lengths": ["1x", "2x"], "also_on": "code"},
        "models": [
            {"methods": "alibi", "train_lengths": [64, 128], "train_on": "text"},
            {"methods": "none", "train_lengths": 64, "lr": 0.002, "eval_lengths": "4x"},
        ],
    }
    config = from_mapping(values)
    assert from_mapping(as_mapping(config)) == config
    runs = {run.name: run for run in plan(config, FOLDER, {}, {}).runs}
    assert list(runs) == [
        *("text/alibi-64-seed1", "text/alibi-128-seed1"),
        *("text/none-64-seed1", "code/none-64-seed1"),
    ]
    rates = [rate_of(run) for run in runs.values()]
    assert rates == ["0.001", "0.001", "0.002", "0.002"]
    evaluated = {}
    for name, run in runs.items():
        steps = run.eval_steps
        evaluated[name] = [(step.config.lengths, step.data) for step in steps]
    assert evaluated["text/alibi-64-seed1"] == [((64, 128), "data-bin"), ((64, 128), "code-bin")]
    assert evaluated["code/none-64-seed1"] == [((256,), "code-bin")]


def test_evaluations_replace_shared_keys():
    values = {
        "corpora": [CORPUS],
        "methods": ["alibi", "none", "transformer_xl"],
        "train_lengths": [64, 128],
        "eval_lengths": "1x",
        "variants": {"alibi": {"limited": {"attention_window": "train_length"}}},
        "evaluations": [
            {"subset": "test", "sliding": {1: "1x"}},
            {"methods": ["alibi", "none"], "train_lengths": 64, "strides": 16, "variants": {}},
        ],
    }
    config = from_mapping(values)
    assert from_mapping(as_mapping(config)) == config
    evaluated = {}
    for run in plan(config, FOLDER, {}, {}).runs:
        steps = []
        for step in run.eval_steps:
            (length,) = step.config.lengths
            steps.append((*step.config.splits, length, *step.config.strides, step.variant))
        evaluated[run.name] = steps
    of_all = [("test", 128, "full", ""), ("test", 128, 1, "")]
    limited = ("test", 128, "full", "limited")
    at_64 = [(split, 64, stride, name) for split, _, stride, name in (*of_all, limited)]
    assert evaluated == {
        "text/alibi-64-seed1": [*at_64, ("valid", 64, 16, "")],
        "text/none-64-seed1": [*at_64[:2], ("valid", 64, 16, "")],
        "text/transformer_xl-64-seed1": at_64[:1],
        "text/alibi-128-seed1": [*of_all, limited],
        "text/none-128-seed1": of_all,
        "text/transformer_xl-128-seed1": of_all[:1],
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"models": [{"methods": "alibbi"}]},
            r"models\[0\]\.methods.0.: .* Did you mean 'alibi'",
        ),
        ({"models": []}, "models"),
        ({"models": [{"train_on": "web"}]}, "there is no corpus 'web'"),
        ({"models": [{"updates": 5}, {"updates": 6}]}, "in two groups with different updates"),
        (
            {"models": [{"eval_lengths": 64}, {"eval_lengths": 32}]},
            "in two groups with different evaluations",
        ),
        (  # a model has one set of trials, and one row in the table of costs
            {"models": [{"seeds": 1, "lr": [0.001, 0.002]}, {"seeds": 2, "lr": [0.01, 0.02]}]},
            "in two groups with different lr",
        ),
        (
            {"models": [{"seeds": 1, "updates": 5}, {"seeds": 2, "updates": 6}]},
            "in two groups with different updates",
        ),
        ({"evaluations": []}, "evaluations"),
        ({"evaluations": [{"methods": "none"}]}, "none includes alibi with the training length"),
        (
            {"evaluations": [{"strides": "x"}]},
            "strides.0. must be 'full' or .*, not 'x'",
        ),
        ({"evaluations": [{"updates": 5}]}, r"evaluations\[0\]\.updates: there is no such key"),
        ({"training": 5}, "training must be keys with their values"),
        ({"training": {"update": 5}}, "update: there is no such key"),
    ],
)
def test_invalid_groups_are_named(changes, message):
    with pytest.raises(UserInputError, match=message):
        from_mapping({"corpora": [CORPUS], **changes})


def test_seeds_of_a_model_may_be_in_two_groups():
    lengths = {"seeds": 2, "eval_lengths": "1x"}  # of fewer seeds than the others
    config = from_mapping({"corpora": [CORPUS], "models": [{"seeds": 1}, {"seeds": 3}, lengths]})
    names = [run.name for run in plan(config, FOLDER, {}, {}).runs]
    assert sorted(names) == [
        *(f"text/alibi-128-seed{seed}" for seed in (1, 2, 3)),
        *(f"text/sinusoidal-128-seed{seed}" for seed in (1, 2, 3)),
    ]


def test_other_corpora_need_the_dictionary_of_the_training(data_bin, tmp_path):
    other = shutil.copytree(data_bin, tmp_path / "other")
    corpora = [{"name": "text", "data": str(data_bin)}, {"name": "other", "data": str(other)}]
    values = {"corpora": corpora, "train_on": "text", "also_on": "other"}
    comparison = Comparison(from_mapping(values), tmp_path / "out")
    comparison.prepare()
    with (other / "dict.txt").open("a") as dictionary:
        dictionary.write("one_more_word 1\n")
    with pytest.raises(UserInputError, match="text and other have different dictionaries"):
        comparison.prepare()


def test_probes_need_not_have_the_dictionary_of_the_texts(data_bin, tmp_path):
    other = shutil.copytree(data_bin, tmp_path / "other")
    corpora = [{"name": "text", "data": str(data_bin)}, {"name": "other", "data": str(other)}]
    values = {"corpora": [*corpora, {"name": "recall", "probe": "mqar"}], "also_on": "other"}
    Comparison(from_mapping(values), tmp_path / "out").prepare()
    with (other / "dict.txt").open("a") as dictionary:
        dictionary.write("one_more_word 1\n")
    with pytest.raises(UserInputError, match="text and other have different dictionaries"):
        Comparison(from_mapping(values), tmp_path / "out").prepare()


def test_models_are_not_evaluated_on_the_probes_of_others():
    corpora = [CORPUS, {"name": "recall", "probe": "mqar"}]
    with pytest.raises(UserInputError, match="also_on: 'recall' is a probe"):
        from_mapping({"corpora": corpora, "also_on": "recall"})
