"""Experiment of a study, from texts to results, and its resumption from results."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fakes import Commands

from alibi_fairseq.data.wikitext103 import ARTICLE_START
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split_identity import SplitIdentity
from alibi_fairseq.experiment import child_process
from alibi_fairseq.experiment.config_files import from_mapping, load_config
from alibi_fairseq.experiment.plan import DataFacts
from alibi_fairseq.experiment.runner import execute_experiment, make_work_items
from alibi_fairseq.experiment.values import at_length, tokens_at
from alibi_fairseq.plugin import training_series
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.data_hashes import DataHashes
from alibi_fairseq.results.file import Results, load, save
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Reading, Series
from alibi_fairseq.results.values import TextValues
from studies.__main__ import main
from studies.analysis.study_results import FinishedModel, StudyResults
from studies.config import StudyConfig
from studies.corpora.excerpt import documents_in
from studies.experiment import Study
from studies.planned_series import planned_series

STUDIES = Path(__file__).parents[2] / "studies"
RESULTS = STUDIES.with_name("results")
EXCERPT = {"train": 3000, "documents": 3, "tokens": 512, "valid": 500}
DESCRIPTION = {
    "title": "Twice",
    "corpora": [
        {"name": "tales", "sample": 60000, "excerpt": EXCERPT},
        {"name": "wiki", "documents": "titles", "excerpt": EXCERPT},
    ],
    "shared_vocabulary": 400,
    "training": {
        "updates": 4,
        "tokens_per_update": 64,
        "lr": [0.002, 0.004],
        "batches_per_update": 2,
        "method_flags": {"t5": "--t5-max-distance {1.5*train_length}"},
    },
    "evaluation": {
        "eval_lengths": ["1x", "2x", "4x", "16x"],
        "sliding": {2: ["1x", "2x", "4x"]},
        "subset": "test",
        "per_document": "empty-lines",
        "score_from": 256,
        "score_to": 512,
        "also_on": "wiki",
        "variants": {"alibi": {"limited": {"attention_window": "train_length"}}},
    },
    "tests": {"corpus": "tales", "train_length": 16},
    "models": [
        {"methods": "alibi", "train_lengths": 16, "train_on": "tales"},
        {"methods": ["alibi", "t5"], "train_lengths": 16, "seeds": [1, 2]},
    ],
}


#: Keys of the training of a study on binary data.
TRAINING = {"updates": 4, "tokens_per_update": 64}
#: Group of models of a study.
SHORT = {"methods": "alibi", "train_lengths": 16}


def evaluated(**changes) -> dict:
    """Return a change of the keys of the evaluation."""
    return {"evaluation": DESCRIPTION["evaluation"] | changes}


def trained(**changes) -> dict:
    """Return a change of the keys of the training."""
    return {"training": DESCRIPTION["training"] | changes}


def no_page() -> Path:
    """Fail: no test of this file may write a page through the study."""
    raise AssertionError


@pytest.fixture
def texts(tmp_path, monkeypatch) -> dict[str, Path]:
    """Write texts of both corpora and the study's configuration to a working folder."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 7))) for _ in range(300)]
    for name in ("tales", "wiki"):
        Path(name).mkdir()
    for number in range(40):
        lines = [" ".join(rng.choices(words, k=12)) for _ in range(40)]
        Path(f"tales/{number}.txt").write_text("\n".join(lines))
        title = f" \n = Title {number} = \n \n = = Section = = \n"
        split = ("train", "valid", "test")[number % 3]
        with open(f"wiki/wiki.{split}.tokens", "a") as file:
            file.write(title + "".join(f" {line} \n" for line in lines))
    Path("study.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    return {name: tmp_path / name for name in ("tales", "wiki")}


def test_models_are_listed_once_in_order(texts):
    results = Path("results")
    study = Study(load_config("study.yaml", StudyConfig), texts, Path("work"), results, no_page)
    plan = study.plan()
    assert [run.name for run in plan.runs] == [
        "tales-alibi-16-seed1",
        "tales-t5-16-seed1",
        "wiki-alibi-16-seed1",
        "wiki-t5-16-seed1",
        "tales-alibi-16-seed2",
        "tales-t5-16-seed2",
        "wiki-alibi-16-seed2",
        "wiki-t5-16-seed2",
    ]
    runs = {run.name: run for run in plan.runs}
    flags = runs["tales-t5-16-seed1"].request["options"]
    assert flags[flags.index("--t5-max-distance") + 1] == "24"
    steps = runs["tales-alibi-16-seed1"].eval_steps
    assert [(step.variant, step.corpus, step.config.strides) for step in steps] == [
        ("", "", ("full",)),
        ("", "", (2,)),
        ("limited", "", ("full",)),
        ("", "wiki", ("full",)),
    ]
    # The trials of a model come right before it.
    items = make_work_items(study, plan, plan.runs)
    assert items[2].name == "tales-alibi-16-seed1"
    assert items[2].after == (items[0].name, items[1].name)
    assert not replace(study, texts={}).plan().runs
    kept = runs["tales-alibi-16-seed1"].kept.folder
    assert kept == Path("results/cells/tales-alibi-16-seed1")


def trial_dictionary(results: Path, model: FinishedModel) -> str | None:
    """Return the hash of the dictionary of a model's trials, or None without trials."""
    paths = list((results / "tuning" / model.model.corpus).glob("*.json"))
    if not paths:
        return None
    return json.loads(paths[0].read_text())["settings"]["trials"][0]["dictionary"]


def test_committed_models_are_not_trained_again(tmp_path, monkeypatch):
    """No plan of a committed study wants a result that its folder lacks."""
    hashes = {}
    facts = {}
    texts = {}
    monkeypatch.setattr(training_series, "_data_hashes", lambda cfg: hashes[cfg.task.data])
    monkeypatch.setattr("alibi_fairseq.experiment.plan.read_data", lambda *_: facts)
    monkeypatch.setattr(
        "alibi_fairseq.evaluation.sweep.identify_split", lambda folder, *_: texts[str(folder.path)]
    )
    complete = []
    for path in sorted(STUDIES.glob("*/*.yaml")):
        config = load_config(path, StudyConfig)
        sources = {corpus.name: tmp_path / corpus.name for corpus in config.corpora}
        for results in RESULTS.glob(f"*/{path.stem}"):
            for model in StudyResults.load(results).models:
                data = str(tmp_path / model.model.corpus / "data-bin")
                train = model.own_results[0].series.settings["data.train"]
                dictionary = model.training.provenance.dictionary_sha256
                hashes[data] = DataHashes((train,), ("0" * 64,), dictionary, {})
                facts[Path(data)] = DataFacts(train, trial_dictionary(results, model))
                case = model.own_results[0].case
                texts[data] = SplitIdentity(case.text, case.documents)
            for run in Study(config, sources, tmp_path, results, no_page).plan().runs:
                if run.kept.folder.is_dir():
                    run.kept.check(run)
                    assert run.is_complete, run.name
                    complete.append(run.kept.folder)
                else:
                    assert not run.is_complete
    trained = sorted(path.parent for path in RESULTS.glob(f"*/*/cells/*/{TRAINING_FILE}"))
    assert sorted(complete) == trained


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*/*.yaml")), ids=lambda path: path.name)
def test_shipped_models_have_different_names(path, tmp_path):
    config = load_config(path, StudyConfig)
    texts = {corpus.name: tmp_path for corpus in config.corpora}
    runs = Study(config, texts, tmp_path, tmp_path, no_page).plan().runs
    assert len(runs) == len(config.all_models())
    assert len({run.name for run in runs}) == len(runs) > 0


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*/*.yaml")), ids=lambda path: path.name)
def test_shipped_windows_divide_scored_tokens(path):
    config = load_config(path, StudyConfig)
    for evaluation in itertools.chain(*(group.evaluations for group in config.models)):
        scored = evaluation.score_to - evaluation.score_from
        for length in evaluation.eval_lengths:
            if isinstance(length, int):
                assert length <= scored
                assert scored % length == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tests": {"corpus": "tales"}}, "train_length"),
        ({"shared_vocabulary": 0}, "shared_vocabulary"),
        (
            {"corpora": [{"name": "tales", "excerpts": EXCERPT}]},
            r"corpora\[0\].excerpts: there",
        ),
        ({"tests": {"corpus": "web", "train_length": 16}}, "no model is trained .* corpus 'web'"),
        (evaluated(also_on="web"), "no corpus 'web'"),
        (evaluated(per_document=None), "per_document: the tests need"),
        (evaluated(score_from=128), "score_from: it must be at least 256"),
        (evaluated(score_to=300), "score_to: it must be at least 512"),
        (evaluated(eval_lengths=["1x", "2x", "4x"]), "need alibi .* at 256 tokens; add this"),
        ({"models": "alibi"}, "models"),
        ({"models": [SHORT | {"methods": "rotary+none"}]}, "'rotary.none'"),
        ({"models": [SHORT | {"methods": "rotary"}]}, "variants: 'alibi'"),
        (
            {"models": [SHORT | {"methods": ["alibi", "t5"]}, SHORT | {"updates": 8}]},
            "different updates",
        ),
        (
            trained(train_flags="--dropout 0 --alibi-cap=50"),
            "--alibi-cap .* write alibi/alibi_cap=",
        ),
        (
            trained(method_flags={"alibi": "--alibi-slopes even"}),
            "--alibi-slopes .* write alibi/alibi_slopes=",
        ),
        (
            {"models": [SHORT | {"methods": ["alibi", "alibi/attention_window=8"]}]},
            "can't tell 'alibi' and 'alibi/attention_window=8' apart",
        ),
    ],
)
def test_invalid_configurations_are_rejected(tmp_path, changes, named):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(DESCRIPTION | changes))
    with pytest.raises(UserInputError, match=named):
        load_config(path, StudyConfig)


def test_shared_dictionary_needs_all_texts(texts):
    with pytest.raises(UserInputError, match="--corpus wiki=PATH"):
        Study(
            config=load_config("study.yaml", StudyConfig),
            texts={"tales": texts["tales"]},
            folder=Path("work"),
            results=Path("results"),
            write_page=no_page,
        ).prepare()


def test_moved_work_folder_needs_no_text(texts, monkeypatch, capsys):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    words = ["study.yaml", "--corpus", "tales=tales", "--corpus", "wiki=wiki"]
    monkeypatch.setattr("studies.page.write_study_page", lambda *_: Path("README.md"))
    assert main([*words, "--models", "tales-alibi-*-seed1", "--parallel", "1"]) == 0
    finished = [name for name, _, _ in commands.trained]
    here = Path.cwd()
    for path in here.rglob("*.json"):
        assert str(here) not in path.read_text()

    moved = here.with_name(f"{here.name}-moved")
    moved.mkdir()
    shutil.copy("study.yaml", moved)
    shutil.copytree("runs", moved / "runs", copy_function=shutil.copyfile)  # other times
    shutil.rmtree("runs")
    monkeypatch.chdir(moved)
    commands.trained.clear()
    capsys.readouterr()
    assert main([*words, "--models", "tales-*-seed1", "--parallel", "1"]) == 0
    trained = [name for name, _, _ in commands.trained]
    assert trained == ["t5-16-seed1-lr0.002", "t5-16-seed1-lr0.004", "t5-16-seed1"]
    assert finished == ["alibi-16-seed1-lr0.002", "alibi-16-seed1-lr0.004", "alibi-16-seed1"]
    assert "The text of tales (tales) is missing. Using the prepared data" in (
        capsys.readouterr().out
    )

    shutil.copytree(here / "tales", "tales")
    with pytest.raises(UserInputError, match="Pass --corpus wiki=PATH with the text"):
        main(words)
    shutil.rmtree("tales")
    os.mkdir("tales")  # as good as none
    config = Path("study.yaml").read_text()
    Path("study.yaml").write_text(config.replace("train: 3000", "train: 2000"))
    with pytest.raises(UserInputError, match="not the excerpt of the corpus 'tales'"):
        main(words)
    Path("study.yaml").write_text(config)
    shutil.rmtree("runs/studies/study/wiki")
    with pytest.raises(FileNotFoundError, match="wiki"):
        main(words)


@pytest.mark.parametrize(
    ("changed", "updates", "named"),
    [
        ({"model.dropout": 0.5}, 4, "model.dropout: 0.5 there, None now"),
        ({}, 3, "updates: 3 there, 4 now"),
    ],
)
def test_settings_of_models_outside_pattern_are_checked(
    texts, monkeypatch, changed, updates, named
):
    monkeypatch.setattr("studies.experiment.prepare_corpora", lambda *arguments: None)
    results = Path("results")
    config = load_config("study.yaml", StudyConfig)
    study = Study(config, texts, Path("work"), results, no_page, pattern="*-seed2")
    (other,) = replace(study, pattern="tales-alibi-16-seed1").plan().runs
    settings = dict(planned_series(other.data, other.flags).settings)
    series = Series({**settings, **changed})
    case = Case("validation", "a" * 64, "valid", 16, 16)
    validation = Result(series, Reading(4), 1, case, TextValues(4.0), updates=updates)
    save(Results([validation]), other.kept.folder / TRAINING_FILE)
    with pytest.raises(UserInputError, match=named):
        study.prepare()


def test_diverged_model_is_recorded_and_not_trained_again(data_bin, tmp_path, monkeypatch):
    commands = Commands()
    commands.validation["rotary"] = {"0.002": None}
    monkeypatch.setattr(child_process, "execute_command", commands)
    config = {
        "title": "One diverges",
        "corpora": [{"name": "demo"}],
        "training": {**TRAINING, "lr": 0.002},
        "evaluation": {"subset": "test", "eval_lengths": 16},
        "shared_vocabulary": 400,
        "models": [{"methods": ["rotary", "alibi"], "train_lengths": 16}],
    }
    results = tmp_path / "results"
    study = Study(
        config=from_mapping(config, StudyConfig),
        texts={"demo": data_bin},
        folder=tmp_path / "work",
        results=results,
        write_page=lambda: results,
    )
    for _ in range(2):
        assert execute_experiment(study, parallel=1) == 0
    assert [name for name, _, _ in commands.trained] == ["rotary-16-seed1", "alibi-16-seed1"]
    assert commands.ran.count("eval") == 1
    assert StudyResults.load(results).diverged == ("demo-rotary-16-seed1",)
    (finished,) = StudyResults.load(results).models
    assert finished.model.method == "alibi"
    # Without this record, as after a kill, the training is not repeated either.
    (results / "cells/demo-rotary-16-seed1" / TRAINING_FILE).unlink()
    assert execute_experiment(study, parallel=1) == 0
    assert StudyResults.load(results).diverged == ("demo-rotary-16-seed1",)
    assert len(commands.trained) == 2


@pytest.mark.parametrize("file", ["evaluation.json", TRAINING_FILE])
def test_model_without_a_result_is_incomplete(data_bin, tmp_path, monkeypatch, file):
    """Its evaluation lacks a case, or its training has another series."""
    monkeypatch.setattr(child_process, "execute_command", Commands())
    config = {
        "title": "One model",
        "corpora": [{"name": "demo"}],
        "training": {**TRAINING, "lr": 0.002},
        "evaluation": {"subset": "test", "eval_lengths": [16, 32]},
        "shared_vocabulary": 400,
        "models": [SHORT],
    }
    study = Study(
        config=from_mapping(config, StudyConfig),
        texts={"demo": data_bin},
        folder=tmp_path / "work",
        results=tmp_path / "results",
        write_page=lambda: tmp_path,
    )
    assert execute_experiment(study, parallel=1) == 0
    (run,) = study.plan().runs
    assert run.is_complete
    path = run.kept.folder / file
    kept = load(path)
    first, *others = kept.results
    other = replace(first, series=Series({**first.series.settings, "model.dropout": 0.5}))
    changed = others if file == "evaluation.json" else [*others, other]
    save(replace(kept, results=changed), path)
    assert not run.is_complete


@pytest.mark.parametrize("parallel", [1, 2])
def test_failed_models_do_not_end_the_study(data_bin, tmp_path, monkeypatch, capsys, parallel):
    """An evaluation, a training, and a trial fail. All rates of T5 bias diverge."""
    commands = Commands()
    commands.failing = {
        ("eval", "alibi-16-seed1"),
        ("train", "rotary-16-seed1"),
        ("train", "sinusoidal-16-seed1-lr0.004"),
    }
    commands.validation["t5"] = {"0.002": None, "0.004": None}
    monkeypatch.setattr(child_process, "execute_command", commands)
    config = {
        "title": "Four fail",
        "corpora": [{"name": "demo"}],
        "training": {**TRAINING, "lr": [0.002, 0.004]},
        "evaluation": {"subset": "test", "eval_lengths": 16},
        "shared_vocabulary": 400,
        "models": [
            {"methods": ["alibi", "rotary", "sinusoidal", "t5", "none"], "train_lengths": 16}
        ],
    }
    results = tmp_path / "results"
    pages = []
    study = Study(
        config=from_mapping(config, StudyConfig),
        texts={"demo": data_bin},
        folder=tmp_path / "work",
        results=results,
        write_page=lambda: pages.append(StudyResults.load(results).models) or results,
    )
    assert execute_experiment(study, parallel) == 1
    (finished,) = pages[0]
    assert finished.model.method == "none"
    error = capsys.readouterr().err
    assert "5 of 15 runs and trials did not complete:\n" in error
    for log in ("demo/rotary-16-seed1/train.log", "demo/sinusoidal-16-seed1-lr0.004/train.log"):
        assert str(study.folder / log) in error
    assert "  demo-sinusoidal-16-seed1: not started, because demo/sinus" in error
    assert "  demo-t5-16-seed1: --lr: T5 bias, L=16 diverged at 0.002, 0.004." in error
    assert "  demo-alibi-16-seed1: evaluating demo-alibi-16-seed1 failed" in error

    commands.failing = set()
    commands.trained.clear()
    commands.ran.clear()
    assert execute_experiment(study, parallel) == 2  # T5 bias
    trained = sorted(name for name, _, _ in commands.trained)
    repeated = ["rotary-16-seed1", "sinusoidal-16-seed1", "sinusoidal-16-seed1-lr0.004"]
    assert trained == repeated
    assert commands.ran.count("eval") == 3
    methods = sorted(finished.model.method for finished in pages[1])
    assert methods == ["alibi", "none", "rotary", "sinusoidal"]


def test_new_study_is_a_yaml_file(texts, monkeypatch):
    """Its models are trained, and its page shows them, without any change of Python."""
    monkeypatch.setattr(child_process, "execute_command", Commands())
    description = {
        "title": "Tales of three methods",
        "introduction": "This page compares three methods.",
        "corpora": [{"name": "tales", "excerpt": EXCERPT}],
        "shared_vocabulary": 400,
        "training": {"updates": 4, "tokens_per_update": 64},
        "evaluation": DESCRIPTION["evaluation"] | {"also_on": []},
        "tests": {"corpus": "tales", "train_length": 16},
        "models": [
            {"methods": ["alibi", "rotary"], "train_lengths": 16},
            {"methods": "alibi", "train_lengths": 64, "lr": 0.004},
        ],
    }
    Path("three.yaml").write_text(yaml.safe_dump(description))
    assert main(["three.yaml", "--corpus", "tales=tales", "--parallel", "1"]) == 0
    page = Path("runs/studies/results/three/README.md").read_text()
    assert page.startswith("# Tales of three methods\n")
    assert "\n\nThis page compares three methods.\n" in page
    disclosure = Path("runs/studies/results/three/disclosure.md").read_text()
    for model in ("alibi-16", "rotary-16", "alibi-64"):
        assert f"tales-{model} (1)" in disclosure


def test_repeated_corpus_is_rejected(texts):
    with pytest.raises(UserInputError, match="--corpus tales=wiki is not a valid NAME=PATH"):
        main(["study.yaml", "--corpus", "tales=tales", "--corpus", "tales=wiki", "--dry-run"])
    assert not Path("runs").exists()


def test_corpus_name_can_be_a_number(texts, capsys):
    config = yaml.safe_load(Path("study.yaml").read_text().replace("tales", "2024"))
    assert config["corpora"][0]["name"] == config["tests"]["corpus"] == 2024
    Path("study.yaml").write_text(yaml.safe_dump(config))
    assert main(["study.yaml", "--corpus", "2024=tales", "--corpus", "wiki=wiki", "--dry-run"]) == 0
    assert "2024-alibi-16-seed1" in capsys.readouterr().out
    with pytest.raises(UserInputError, match="each of 2024, wiki"):
        main(["study.yaml", "--corpus", "2025=tales", "--dry-run"])


def test_lengths_and_flags_by_training_length():
    assert tokens_at((64, "1x", "4x", "1x+50", "2x"), 32) == (64, 32, 128, 82)
    assert at_length("{train_length} {0.75*train_length}", 64) == "64 48"


def test_documents():
    text = b"ahead \n = One = \n a \n = = Section = = \n b \n = Two of a = \n c \n"
    assert ARTICLE_START.split(text)[1:] == [
        b" = One = \n a \n = = Section = = \n b \n",
        b" = Two of a = \n c \n",
    ]
    lines = [[5, 2], [5, 6, 2], [2], [2], [7, 2], [2], [8, 2]]
    assert list(documents_in(lines)) == [[0, 1], [4], [6]]


@pytest.mark.slow
def test_repeated_model_has_same_numbers(texts, capsys):
    corpora = ["--corpus", "tales=tales", "--corpus", "wiki=wiki"]
    for name in ("one", "two"):
        folders = ["--work-dir", f"runs-{name}", "--results", f"results-{name}"]
        words = [*corpora, *folders, "--models", "tales-alibi-*-seed1"]
        assert main(["study.yaml", *words]) == 0
    name = "tales-alibi-16-seed1"
    first = Path(f"results-one/study/cells/{name}")
    second = Path(f"results-two/study/cells/{name}")
    for file in ("evaluation.json", "evaluation-on-wiki.json"):
        results = load(first / file).results
        repeated = load(second / file).results
        assert results
        for result, other in zip(results, repeated, strict=True):
            assert result.series == other.series
            assert (result.case, result.reading) == (other.case, other.reading)
            assert result.reading.variant == other.reading.variant
            assert result.values == other.values
        assert {result.values.tokens for result in results} == {3 * 256}
    last = load(first / TRAINING_FILE).results[-1]
    assert last.updates == 4
    assert last.cost.trained_tokens == 4 * 64
    losses = StudyResults.load(Path("results-one/study")).losses
    cases = {(key.tested_on, key.length, key.stride, key.variant) for key in losses}
    expected = {("tales", length, 2, "") for length in (16, 32, 64)}
    for length in (16, 32, 64, 256):
        for variant in ("", "limited"):
            expected.add(("tales", length, length, variant))
        expected.add(("wiki", length, length, ""))
    assert cases == expected
    page = Path("results-one/study/README.md").read_text()
    assert "Trained on tales with L = 16, tested on wiki:" in page
    # The saved results, with the learning rate, complete the run without its checkpoints.
    capsys.readouterr()
    words = [*corpora, "--work-dir", "runs-new", "--results", "results-one"]
    assert main(["study.yaml", *words, "--models", name]) == 0
    assert "All 1 runs already complete" in capsys.readouterr().out
    outcome = StudyResults.load(Path("results-one/study")).trials["tales/alibi-16"]
    assert outcome["lr"] in (0.002, 0.004)
    assert len(outcome["trials"]) == 2
    changed = DESCRIPTION | {"training": DESCRIPTION["training"] | {"updates": 5}}
    Path("study.yaml").write_text(yaml.safe_dump(changed))
    with pytest.raises(UserInputError, match="that was trained with different settings"):
        main(["study.yaml", *words, "--models", name])
