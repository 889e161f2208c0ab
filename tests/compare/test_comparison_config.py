"""Descriptions of comparisons, from YAML and from options."""

import pytest
import yaml

from alibi_fairseq.cli import make_parser
from alibi_fairseq.cli.compare import CompareCommand
from alibi_fairseq.compare.comparison_config import PAPER_METHODS, as_mapping, from_mapping, load
from alibi_fairseq.compare.experiment import runs_of
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import METHODS

CORPUS = {"name": "mine", "text": "book.txt"}

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
order: [train_lengths, methods, corpora, seeds]
"""


def test_a_yaml_file_and_back(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    study = load(path)
    assert study.corpora[0].text == ("wiki-1.txt", "wiki-2.txt") and study.corpora[1].text == ()
    assert study.train_flags == ("--dropout", "0.2", "--clip-norm", "0.5")
    assert study.tokens == 600 * 2048
    path.write_text(yaml.safe_dump(as_mapping(study)))
    assert load(path) == study
    for text in ("- a list", "{broken", ""):
        path.write_text(text)
        with pytest.raises(UserInputError, match=r"study\.yaml"):
            load(path)


def test_cells_come_in_the_order_of_importance():
    cells = list(from_mapping(yaml.safe_load(STUDY)).cells())
    assert len(set(cells)) == len(cells) == 2 * 2 * 2 * 3
    assert cells[:3] == [("wiki", "alibi", 64, seed) for seed in (1, 2, 3)]
    assert cells[3] == ("code", "alibi", 64, 1)
    # By default all methods of the first seed come first.
    default = from_mapping({"corpora": [CORPUS], "seeds": [1, 2], "methods": ["alibi", "none"]})
    cells = [(cell.method, cell.seed) for cell in default.cells()]
    assert cells == [("alibi", 1), ("none", 1), ("alibi", 2), ("none", 2)]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"method": "alibi"}, "method: there is no such key"),
        ({"methods": ["alibbi"]}, "Did you mean 'alibi'"),
        ({"methods": []}, "methods"),
        ({"train_lengths": [0]}, "train_lengths"),
        ({"hours": -1}, "hours"),
        ({"tokens_per_update": 100, "train_lengths": [64]}, "not a multiple .* 64.*use 128"),
        ({"order": ["seeds"]}, "order"),
        ({"train_flags": "--seed=3"}, "--seed"),
        ({"train_flags": "--lr-scheduler fixed"}, "--lr-scheduler"),
        ({"method_flags": {"t5": "--lr 1"}}, "method_flags.t5.*--lr"),
        ({"also_on": "web"}, "no corpus 'web'"),
        ({"eval_lengths": ["x2"]}, "eval_lengths"),
        ({"corpora": [{"name": "a"}]}, "either 'text' or 'data'"),
        ({"corpora": [{"name": "a", "probe": "passkey"}]}, "either 'text' or 'data'"),
        ({"corpora": [{"name": "a", "probe": "copy", "text": "a"}]}, "takes no text"),
        ({"corpora": [{"name": "a", "probe": "copy"}], "train_lengths": 16}, "at least 20 tokens"),
        ({"corpora": [CORPUS, CORPUS]}, "same name"),
        ({"corpora": [{**CORPUS, "tokeniser": "words"}]}, "corpora.0.tokeniser: there is no"),
        *(
            ({"corpora": [{**CORPUS, "name": each}]}, "a name")
            for each in ("../a", "/a", "a/b", "")
        ),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(UserInputError, match=message):
        from_mapping({"corpora": [CORPUS], **change})


def described(monkeypatch, *arguments: object):
    """The comparison of a command line."""
    command = ["compare", *map(str, arguments), "--out", "runs/mine"]
    monkeypatch.setattr(CompareCommand, "__call__", CompareCommand.comparison)
    return CompareCommand.run(make_parser(command).parse_args(command))


def test_options_describe_the_same_as_yaml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("text")
    options = "--methods alibi,none --train-lengths 64,128 --eval-lengths 64,4x --seeds 1,2"
    options += " --lr 0.01 --tokenizer words --vocab-size 500"
    made = described(monkeypatch, "book.txt", *options.split(), "--train-flags", "--dropout 0")
    corpus = {"name": "book", "text": "book.txt", "tokenizer": "words", "vocabulary": 500}
    values = {"methods": ["alibi", "none"], "train_lengths": [64, 128], "eval_lengths": [64, "4x"]}
    values |= {"seeds": [1, 2], "lr": 0.01, "train_flags": "--dropout 0"}
    assert made == from_mapping({"corpora": [corpus], **values})
    assert described(monkeypatch, "book.txt", "--methods", "all").methods == PAPER_METHODS
    every = described(monkeypatch, "book.txt", "--methods", "all,later,alibi").methods
    assert every[:7] == PAPER_METHODS and sorted(every) == sorted(METHODS)
    _, *probes = described(monkeypatch, "book.txt", "--probes", "copy,passkey").corpora
    assert [each.probe for each in probes] == [each.name for each in probes] == ["copy", "passkey"]
    assert [each.data for each in probes] == [None, "runs/mine/book/data-bin"]
    (alone,) = described(monkeypatch, "--probes", "copy").corpora
    assert alone == probes[0]


def test_binary_data_yaml_and_missing_text(tmp_path, monkeypatch):
    data = tmp_path / "wiki" / "data-bin"
    data.mkdir(parents=True)
    (data / "dict.txt").touch()
    corpus = described(monkeypatch, data).corpora[0]
    assert (corpus.name, corpus.data, corpus.text) == ("wiki", str(data), ())
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    assert described(monkeypatch, study).title == "A study"
    for words in ((data, "--tokenizer", "words"), (study, "--seeds", "1"), ()):
        with pytest.raises(UserInputError, match=r"[Gg]ive (it|a text)"):
            described(monkeypatch, *words)


def test_linear_schedule_ends_with_each_training(tmp_path):
    values = {"corpora": [CORPUS], "methods": "alibi", "lr": [0.1, 0.2], "tune_share": 0.25}
    comparison = from_mapping({**values, "updates": 80, "lr_schedule": "linear"})
    (run,) = runs_of(comparison, tmp_path)
    for training, updates in ((run, "80"), *((trial, "20") for trial in run.tuning.trials)):
        flags = training.flags
        assert flags[flags.index("--lr-scheduler") + 1] == "polynomial_decay"
        assert flags[flags.index("--total-num-update") + 1] == updates
        assert flags[flags.index("--max-update") + 1] == updates
