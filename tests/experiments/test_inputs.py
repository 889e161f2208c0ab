"""Bad input is one sentence and exit code 2, before any work."""

from __future__ import annotations

import shutil
from collections import namedtuple

import pytest
import torch
from data.preparations import books, wikitext_zip
from stand_ins import Commands

from alibi_fairseq.cli import main
from alibi_fairseq.experiments import command


@pytest.fixture
def commands(monkeypatch):
    stand_ins = Commands()
    monkeypatch.setattr(command, "execute", stand_ins)
    return stand_ins


@pytest.fixture
def texts(tmp_path):
    """Text of each corpus's kind, none of them the paper's."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "web.txt").write_text("A document.\n\nAnother.\n")
    return {
        "wikitext-103": wikitext_zip(folder / "wikitext-103-v1.zip", folder / "wiki"),
        "bookcorpus": books(folder / "books"),
        "cc100-roberta": folder / "web.txt",
    }


def refused(capsys, tmp_path, *words) -> str:
    """The sentence of a run that ends with 2; nothing but perhaps the lock is left."""
    work = tmp_path / "work"
    assert main(["reproduce", *map(str, words), "--work-dir", str(work)]) == 2
    left = {path.name for path in work.rglob("*") if path.is_file()} if work.exists() else set()
    assert left <= {"lock"}
    (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    return line


ITEMS = {"wikitext-103": "table5", "bookcorpus": "table8", "cc100-roberta": "table12"}


@pytest.mark.parametrize("corpus", ITEMS)
def test_text_that_is_not_the_papers_needs_a_flag(corpus, texts, commands, tmp_path, capsys):
    given = f"{corpus}={texts[corpus]}"
    said = refused(capsys, tmp_path, ITEMS[corpus], "--scale", "smoke", "--corpus", given)
    assert "--allow-other-text" in said and commands.ran == []


def test_a_corpus_that_turns_out_to_be_other_text_stops_before_training(commands, tmp_path, capsys):
    """Plain text for BookCorpus may be the paper's; only its preparation can tell."""
    text = tmp_path / "all.txt"
    text.write_text("A sentence.\n")
    words = ["table8", "--cpu", "1", "--corpus", f"bookcorpus={text}"]
    assert main(["reproduce", *words, "--work-dir", str(tmp_path / "work")]) == 2
    assert "turned out not to be the paper's bookcorpus" in capsys.readouterr().err
    assert commands.ran == ["alibi_fairseq prepare"]


def test_all_texts_are_looked_at_before_the_first_is_prepared(texts, commands, tmp_path, capsys):
    given = [f"--corpus={name}={path}" for name, path in texts.items()]
    given[-1] += ".gone"
    said = refused(capsys, tmp_path, "all", "--scale", "smoke", "--allow-other-text", *given)
    assert "no such file or folder" in said and commands.ran == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["table5"], "give it with --corpus wikitext-103=PATH"),
        (["all"], "--corpus wikitext-103=PATH --corpus bookcorpus=PATH --corpus cc100-roberta="),
        (["table5", "--corpus", "wikitext-2=/tmp"], "one of the names wikitext-103, bookcorpus"),
        (["table5", "--corpus", "wikitext-103"], "--corpus takes NAME=PATH"),
        (["table5", "--corpus", "wikitext-103=nowhere.zip"], "there is no such file or folder"),
        (["table17"], "choose from table2"),
        (["table1"], "python -m benchmarks.methods"),
        (["table5", "--gpus", "2", "--cpu", "2"], "Choose one of --gpus and --cpu"),
        (["table5", "--scale", "smoke", "--cpu", "7"], "7 GPUs cannot keep"),
        (["table5", "--cpu", "0"], "must be at least 1"),
        (["table5", "--scale", "smoke", "--parallel", "0"], "--parallel must be at least 1"),
    ],
)
def test_one_sentence(words, sentence, texts, commands, tmp_path, capsys):
    if {"--cpu", "--parallel"} & set(words):
        words = [*words, "--allow-other-text", "--corpus", f"wikitext-103={texts['wikitext-103']}"]
    assert sentence in refused(capsys, tmp_path, *words)
    assert commands.ran == []


@pytest.mark.parametrize(("there", "gpus"), [(0, []), (2, ["--gpus", "8"])])
def test_gpus_that_are_not_there(there, gpus, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    given = f"wikitext-103={texts['wikitext-103']}"
    said = refused(capsys, tmp_path, "table5", "--allow-other-text", "--corpus", given, *gpus)
    assert "--cpu N" in said


def test_a_disk_that_is_too_small(texts, commands, tmp_path, monkeypatch, capsys):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 1_000_000))
    given = f"wikitext-103={texts['wikitext-103']}"
    words = ["table5", "--scale", "smoke", "--allow-other-text", "--corpus", given]
    said = refused(capsys, tmp_path, *words)
    assert "The remaining work needs about" in said and "--work-dir" in said
    assert commands.ran == []
