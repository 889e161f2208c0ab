"""Descriptions of comparisons, from YAML and from options."""

import pytest
import yaml

from alibi_fairseq.cli import make_parser
from alibi_fairseq.cli.compare import CompareVerb
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments.comparison import PAPER_METHODS, as_mapping, from_mapping, load
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


def test_cells_come_in_the_order_of_importance(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    cells = list(load(tmp_path / "study.yaml").cells())
    assert len(set(cells)) == len(cells) == 2 * 2 * 2 * 3
    assert cells[:4] == [
        ("wiki", "alibi", 64, 1),
        ("wiki", "alibi", 64, 2),
        ("wiki", "alibi", 64, 3),
        ("code", "alibi", 64, 1),
    ]
    # By default all methods of the first seed come first.
    default = from_mapping({"corpora": [CORPUS], "seeds": [1, 2], "methods": ["alibi", "none"]})
    assert [(m, s) for _, m, _, s in default.cells()] == [
        ("alibi", 1),
        ("none", 1),
        ("alibi", 2),
        ("none", 2),
    ]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"method": "alibi"}, "no key 'method'. Did you mean 'methods'"),
        ({"methods": ["alibbi"]}, "Did you mean 'alibi'"),
        ({"methods": []}, "methods"),
        ({"seeds": "one"}, "seeds"),
        ({"train_lengths": [0]}, "train_lengths"),
        ({"updates": 0}, "updates"),
        ({"tokens_per_update": 100, "train_lengths": [64]}, "not a multiple .* 64.*use 128"),
        ({"order": ["seeds"]}, "order: must name"),
        ({"train_flags": "--seed=3"}, "itself sets --seed"),
        ({"corpora": "book.txt"}, "must be a list"),
        ({"corpora": [{"name": "a"}]}, "either 'text' or 'data'"),
        ({"corpora": [CORPUS, CORPUS]}, "same name"),
        ({"corpora": [{**CORPUS, "tokeniser": "words"}]}, "Did you mean 'tokenizer'"),
    ],
)
def test_what_is_wrong_is_named(change, message):
    with pytest.raises(BadInput, match=message):
        from_mapping({"corpora": [CORPUS], **change})


def test_a_file_that_is_no_description(tmp_path):
    path = tmp_path / "study.yaml"
    for text in ("- a list", "{broken", ""):
        path.write_text(text)
        with pytest.raises(BadInput, match=r"study\.yaml"):
            load(path)


def described(monkeypatch, *arguments: object):
    """The comparison of a command line."""
    command = ["compare", *map(str, arguments), "--out", "runs/mine"]
    monkeypatch.setattr(CompareVerb, "__call__", CompareVerb.comparison)
    return CompareVerb.run(make_parser(command).parse_args(command))


def test_options_describe_the_same_as_yaml(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("text")
    made = described(
        monkeypatch,
        *(
            *("book.txt", "--methods", "alibi, none", "--train-lengths", "64,128"),
            *("--eval-lengths", "64,256", "--seeds", "1,2", "--lr", "0.01"),
            *("--tokenizer", "words", "--vocab-size", "500", "--train-flags", "--dropout 0"),
        ),
    )
    corpus = {"name": "book", "text": "book.txt", "tokenizer": "words", "vocabulary": 500}
    assert made == from_mapping(
        {
            "corpora": [corpus],
            "methods": ["alibi", "none"],
            "train_lengths": [64, 128],
            "eval_lengths": [64, 256],
            "seeds": [1, 2],
            "lr": 0.01,
            "train_flags": "--dropout 0",
        }
    )
    assert described(monkeypatch, "book.txt", "--methods", "all").methods == PAPER_METHODS
    every = described(monkeypatch, "book.txt", "--methods", "all,later,alibi").methods
    assert every[:7] == PAPER_METHODS and sorted(every) == sorted(METHODS)


def test_binary_data_yaml_and_missing_text(tmp_path, monkeypatch):
    data = tmp_path / "wiki" / "data-bin"
    data.mkdir(parents=True)
    (data / "dict.txt").touch()
    corpus = described(monkeypatch, data).corpora[0]
    assert (corpus.name, corpus.data, corpus.text) == ("wiki", str(data), ())
    with pytest.raises(BadInput, match="binary data already"):
        described(monkeypatch, data, "--tokenizer", "words")
    with pytest.raises(BadInput, match="no such file"):
        described(monkeypatch, tmp_path / "missing.txt")
    (tmp_path / "study.yaml").write_text(STUDY)
    assert described(monkeypatch, tmp_path / "study.yaml").title == "A study"
    with pytest.raises(BadInput, match="instead of giving --seeds"):
        described(monkeypatch, tmp_path / "study.yaml", "--seeds", "1")


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "a/b", "..", ""])
def test_a_corpus_stays_in_the_folder(name):
    with pytest.raises(BadInput, match="cannot be the name of a folder"):
        from_mapping({"corpora": [{"name": name, "data": "x"}]})
