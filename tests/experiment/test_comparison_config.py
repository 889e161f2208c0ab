"""Tests of comparison configurations, from YAML and from options."""

from dataclasses import fields

import pytest
import yaml

from alibi_fairseq.cli import make_parser
from alibi_fairseq.cli.compare import CompareCommand
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.experiment.config_files import as_mapping, from_mapping, load_config
from alibi_fairseq.experiment.plan import plan_from_folder
from alibi_fairseq.experiment.schema import Evaluation
from alibi_fairseq.experiment.values import PAPER_METHODS
from alibi_fairseq.positions import METHODS, MethodSpec, PositionMethod

CORPUS = {"name": "mine", "text": "book.txt"}
DATA = {"name": "mine", "data": "data-bin"}

STUDY = """
title: A study
corpora:
  - {name: wiki, text: [wiki-1.txt, wiki-2.txt], tokenizer: words}
  - {name: code, data: data-bin/code}
methods: [alibi, rotary]
train_lengths: [64, 128]
eval_lengths: [64, 512]
seeds: [1, 2, 3]
updates: 600
tokens_per_update: 2048
train_flags: --dropout 0.2 --clip-norm 0.5
"""


def test_yaml_round_trip(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    study = load_config(path)
    assert study.corpora[0].text == ("wiki-1.txt", "wiki-2.txt")
    assert study.corpora[1].text == ()
    (group,) = study.models
    assert group.train_flags == ("--dropout", "0.2", "--clip-norm", "0.5")
    path.write_text(yaml.safe_dump(as_mapping(study)))
    assert load_config(path) == study
    for text in ("- a list", "{broken", "", STUDY + "updates: 700"):
        path.write_text(text)
        with pytest.raises(UserInputError, match=r"study\.yaml"):
            load_config(path)


def test_models_of_the_first_seed_come_first():
    models = from_mapping(yaml.safe_load(STUDY)).all_models()
    cells = [(model.corpus.name, *model[2:]) for model in models]
    assert len(set(cells)) == len(cells) == 2 * 2 * 2 * 3
    methods = [MethodSpec.parse(name) for name in ("alibi", "rotary")]
    assert cells[:2] == [("wiki", method, 64, 1) for method in methods]
    assert cells[2:4] == [("wiki", method, 128, 1) for method in methods]
    assert cells[4] == ("code", methods[0], 64, 1)
    assert cells[8] == ("wiki", methods[0], 64, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "alibi"}, "method: there is no such key"),
        ({"methods": ["alibbi"]}, "Did you mean 'alibi'"),
        ({"methods": []}, "methods"),
        ({"methods": ["rotary+nonne"]}, "Did you mean 'none'"),
        ({"methods": ["rotary/base=5"]}, "'base=5', which is not OPTION=VALUE .*rotary_base"),
        ({"methods": ["rotary/p_rope=most"]}, "p_rope .* must be a number, not 'most'"),
        ({"methods": ["alibi/attention_window=64+far"]}, "attention-window .* number of tokens"),
        ({"methods": ["alibi/score_scaling=log"]}, "score_scaling .* one of none, logn, ssmax"),
        ({"train_lengths": [0]}, "train_lengths"),
        ({"hours": 8}, "hours: there is no such key"),
        ({"tokens_per_update": 100, "train_lengths": [64]}, "not a multiple .* 64.*use 128"),
        ({"batches_per_update": 3, "train_lengths": [64]}, "64 times 3 batches.*use 4224"),
        ({"batches_per_update": 0}, "batches_per_update"),
        ({"methods": "all", "strides": ["full", 8]}, "strides: the memory of transformer_xl"),
        (
            {"train_flags": None},
            "train_flags must be one text or .*, not null; remove",
        ),
        ({"train_flags": 5}, "train_flags must be one text or a list of texts, not 5;"),
        ({"method_flags": {"alibi": None}}, "method_flags.alibi must be one text or a list"),
        ({"train_flags": "--seed=3"}, "--seed"),
        ({"train_flags": "--update-freq 2"}, "--update-freq"),
        ({"train_flags": "--batch-size 2"}, "sets --batch-size"),
        ({"train_flags": "--required-batch-size-multiple 8"}, "--required-batch-size-multiple"),
        ({"train_flags": "--sample-break-mode=complete"}, "sets --sample-break-mode"),
        ({"train_flags": "--patience 3"}, "--patience may stop models .*; remove it"),
        ({"train_flags": "--max-epoch 1"}, "--max-epoch may stop models .*; remove it"),
        ({"train_flags": "--stop-time-hours 1"}, "--stop-time-hours may stop models"),
        ({"train_flags": "--stop-min-lr=1e-9"}, "--stop-min-lr may stop models"),
        ({"train_flags": "--no-save"}, "--no-save leaves no checkpoint to evaluate; remove it"),
        ({"train_flags": "--no-last-checkpoints"}, "--no-last-checkpoints leaves no checkpoint"),
        ({"train_flags": "--max-sentences=2"}, "sets --max-sentences"),
        ({"train_flags": "--distributed-world-size 2"}, "sets --distributed-world-size"),
        ({"train_flags": "--lr-scheduler fixed"}, "--lr-scheduler"),
        ({"train_flags": "--disable-validation"}, "--disable-validation .* remove it"),
        ({"train_flags": "--restore-file=base.pt"}, "--restore-file .*--finetune-from-model"),
        ({"method_flags": {"t5": "--reset-optimizer"}}, "t5: --reset-optimizer .*--continue-once"),
        ({"method_flags": {"t5": "--lr 1"}}, "method_flags.t5.*--lr"),
        ({"eval_lengths": ["x2"]}, "eval_lengths"),
        ({"lr": float("inf")}, r"lr\[0\] must be a finite number, not inf"),
        ({"corpora": [{"name": "a"}]}, "either 'text' or 'data'"),
        ({"corpora": [{"name": "a", "probe": "passkey"}]}, "either 'text' or 'data'"),
        ({"corpora": [{"name": "a", "probe": "copy", "text": "a"}]}, "takes no text"),
        ({"corpora": [{"name": "a", "probe": "copy"}], "train_lengths": 16}, "at least 20 tokens"),
        ({"corpora": [{"name": "a", "probe": "mqar"}], "train_lengths": 16}, "at least 20 tokens"),
        ({"corpora": [{"name": "a", "probe": "mqars"}]}, "mqar"),
        ({"corpora": [{**DATA, "tokenizer": "words"}]}, r"corpora\[0\]: .* Remove 'tokenizer'"),
        ({"corpora": [{**DATA, "vocabulary": 500}]}, "Remove 'vocabulary'"),
        (
            {"evaluations": [{"per_document": "titles"}, {"per_document": "empty-lines"}]},
            "evaluations: two .* split valid .* \\(empty-lines, titles\\); keep one",
        ),
        ({"corpora": [CORPUS, CORPUS]}, "same name"),
        ({"corpora": [{**CORPUS, "tokeniser": "words"}]}, r"corpora\[0\].tokeniser: there is no"),
        ({"corpora": [{**CORPUS, "name": "../a"}]}, "a name"),
        ({"corpora": [{**CORPUS, "name": "/a"}]}, "a name"),
        ({"corpora": [{**CORPUS, "name": "a/b"}]}, "a name"),
        ({"corpora": [{**CORPUS, "name": ""}]}, "a name"),
        ({"corpora": [{**CORPUS, "name": "a:b"}]}, r"corpora\[0\]: .* 'a:b' contains ':'.*rename"),
        ({"corpora": [{**CORPUS, "name": "lock"}]}, r"corpora\[0\]: .* 'lock' .*rename"),
        ({"corpora": [{**CORPUS, "name": "jobs"}]}, r"corpora\[0\]: .* 'jobs' .*rename"),
    ],
)
def test_invalid_value_is_named(change, message):
    with pytest.raises(UserInputError, match=message):
        from_mapping({"corpora": [CORPUS], **change})


@pytest.mark.parametrize(
    "second", [{"subset": "test"}, {"score_to": 64}, {"methods": "t5"}, {"per_document": "titles"}]
)
def test_losses_of_documents_that_can_all_be_kept_are_accepted(second):
    first = {"per_document": "titles", "methods": "alibi"}
    second = {"per_document": "empty-lines", "methods": "alibi", **second}
    values = {"methods": ["alibi", "t5"], "evaluations": [first, second, {"methods": "t5"}]}
    from_mapping({"corpora": [CORPUS], **values})


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, "--max-tokens 1024 --required-batch-size-multiple"),
        ({"batches_per_update": 4}, "--max-tokens 256 --update-freq 4 --required-batch"),
    ],
)
def test_batches_per_update_divide_the_tokens_of_an_update(tmp_path, changes, flags):
    values = {"corpora": [CORPUS], "train_lengths": 64, "tokens_per_update": 1024}
    runs = plan_from_folder(from_mapping({**values, **changes}), tmp_path).runs
    assert runs
    for run in runs:
        assert flags in " ".join(run.flags)
        assert run.tokens == 1000 * 1024


def parse_comparison(monkeypatch, *arguments: object):
    """Return the comparison of a command line."""
    command = ["compare", *map(str, arguments), "--out", "runs/mine"]
    monkeypatch.setattr(CompareCommand, "__call__", CompareCommand.config)
    return CompareCommand.run(make_parser(command).parse_args(command))


def test_corpus_has_the_name_that_was_typed(tmp_path, monkeypatch):
    """Also without the text, from which the data was prepared."""
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "texts" / "book.txt"
    text.parent.mkdir()
    text.write_text("text")
    link = tmp_path / "mine"
    link.symlink_to("texts")
    monkeypatch.chdir(text.parent)
    for path, name in (("../mine", "mine"), (".", "texts"), ("../mine/book.txt", "book")):
        assert parse_comparison(monkeypatch, path).corpora[0].name == name
    link.unlink()
    assert parse_comparison(monkeypatch, "../mine").corpora[0].name == "mine"


def parsed_methods(monkeypatch, methods: str) -> list[str]:
    comparison = parse_comparison(monkeypatch, "book.txt", "--methods", methods)
    return [method.notation for method in comparison.models[0].methods]


def test_options_match_yaml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("text")
    options = "--methods alibi,none --train-lengths 64,128 --lengths 64,4x --seeds 1,2"
    options += " --lr 0.01 --tokenizer words --vocab-size 500"
    comparison = parse_comparison(
        monkeypatch, "book.txt", *options.split(), "--train-flags", "--dropout 0"
    )
    corpus = {"name": "book", "text": "book.txt", "tokenizer": "words", "vocabulary": 500}
    values = {
        "corpora": [corpus],
        "methods": ["alibi", "none"],
        "train_lengths": [64, 128],
        "eval_lengths": [64, "4x"],
        "seeds": [1, 2],
        "lr": 0.01,
        "train_flags": "--dropout 0",
    }
    assert comparison == from_mapping(values)
    assert parsed_methods(monkeypatch, "all") == list(PAPER_METHODS)
    methods = parsed_methods(monkeypatch, "all,later,alibi")
    assert methods[:7] == list(PAPER_METHODS)
    assert sorted(methods) == sorted(METHODS)
    method_of_plugin = type("Root", (PositionMethod,), {"__module__": "my_plugin"})
    monkeypatch.setitem(METHODS, "root", method_of_plugin)
    assert parsed_methods(monkeypatch, "all,later") == methods
    probes = parse_comparison(monkeypatch, "book.txt", "--probes", "copy,passkey").corpora[1:]
    assert [corpus.probe for corpus in probes] == ["copy", "passkey"]
    assert [corpus.name for corpus in probes] == ["copy", "passkey"]
    assert [corpus.data for corpus in probes] == [None, "runs/mine/book/data-bin"]
    (alone,) = parse_comparison(monkeypatch, "--probes", "copy").corpora
    assert alone == probes[0]


def test_sources_are_data_or_yaml(tmp_path, monkeypatch):
    data = tmp_path / "wiki" / "data-bin"
    data.mkdir(parents=True)
    (data / "dict.txt").touch()
    corpus = parse_comparison(monkeypatch, data).corpora[0]
    assert (corpus.name, corpus.data, corpus.text) == ("wiki", str(data), ())
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    assert parse_comparison(monkeypatch, study).title == "A study"


def test_linear_schedule_ends_at_max_update(tmp_path):
    values = {"corpora": [CORPUS], "methods": "alibi", "lr": [0.1, 0.2], "tune_share": 0.25}
    comparison = from_mapping({**values, "updates": 80, "lr_schedule": "linear"})
    plan = plan_from_folder(comparison, tmp_path)
    (run,) = plan.runs
    trainings = [(run, "80")]
    for trial in plan.trial_runs:
        trainings.append((trial, "20"))
    for training, updates in trainings:
        flags = training.flags
        assert flags[flags.index("--lr-scheduler") + 1] == "polynomial_decay"
        assert flags[flags.index("--total-num-update") + 1] == updates
        assert flags[flags.index("--max-update") + 1] == updates


def test_notation_sets_layers_and_options(tmp_path):
    methods = ["rotary+none/attention_window=64+0", "rotary/p_rope=0.75/rotary_base=500000"]
    flags = {"rotary+none/attention_window=64+0": "--dropout 0.2"}
    values = {"corpora": [CORPUS], "methods": methods, "lr": [0.1, 0.2], "method_flags": flags}
    pattern, options = plan_from_folder(from_mapping(values), tmp_path).runs
    assert pattern.name == "mine/rotary+none-attention_window=64+0-128-seed1"
    words = " ".join(pattern.flags)
    assert "--position-method rotary,none --attention-window 64,0 --tokens-per-sample" in words
    assert "--dropout 0.2" in words
    assert "--dropout" not in options.flags
    assert "--position-method rotary --p-rope 0.75 --rotary-base 500000" in " ".join(options.flags)


@pytest.mark.parametrize(
    "keys",
    [
        {"method_flags": {"t5": "--t5-max-distance 96"}},
        {"variants": {"t5": {"limited": {"attention_window": 64}}}},
    ],
)
def test_keys_without_a_model_are_rejected(keys):
    comparison = from_mapping({"corpora": [CORPUS], "methods": "t5/attention_window=64", **keys})
    with pytest.raises(UserInputError, match="'t5' is not one of the methods"):
        comparison.check_method_keys()
    group = {"methods": ["alibi", "t5"]}
    from_mapping({"corpora": [CORPUS], "models": [keys, group | keys]}).check_method_keys()


def test_notation_reads_commas_between_methods(monkeypatch):
    given = "all,later,rotary+none,rotary/p_rope=0.75"
    methods = parsed_methods(monkeypatch, given)
    assert methods[-2:] == ["rotary+none", "rotary/p_rope=0.75"]
    assert sorted(methods[:-2]) == sorted(METHODS)


def test_options_of_eval_are_passed_on():
    settings = {"strides": (8,), "per_document": "titles", "score_from": 40, "score_to": 80}
    shared = {field.name for field in fields(Evaluation)}
    shared &= {field.name for field in fields(SweepConfig)}
    assert shared == settings.keys()
    config = Evaluation(eval_lengths="4x", subset="test", **settings).sweep_config(16)
    assert (config.lengths, config.splits) == ((64,), ("test",))
    assert {name: getattr(config, name) for name in settings} == settings
