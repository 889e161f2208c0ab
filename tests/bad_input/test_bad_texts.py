"""Bad input of ``prepare``: texts, archives, tokenizers, and output folders."""

from __future__ import annotations

import gzip
import shutil
import zipfile
from pathlib import Path

import pytest
from data.preparations import books, documents_file, tarred, wikitext_files, wikitext_zip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Return a folder of texts, in which the commands run."""
    folder = tmp_path_factory.mktemp("inputs")
    packed = wikitext_zip(folder / "wikitext-103-v1.zip", folder / "text").read_bytes()
    (folder / "cut.zip").write_bytes(packed[:-100])
    wikitext_files(folder / "latin")["valid"].write_bytes(b"na\xefve\n")
    (folder / "latin" / "latin.txt").write_bytes(b"na\xefve\n" * 2000)
    books(folder / "books")
    for name in ("empty", "one"):
        (folder / name).mkdir()
    shutil.copy(folder / "books" / "book01.txt", folder / "one")
    (folder / "one" / "blank.txt").write_text(" \n")
    text = documents_file(folder / "text.txt")
    (folder / "short.txt").write_text("A line.\n")
    # The last twentieth of this text is the empty line after it.
    (folder / "equal-lines.txt").write_text("A line.\n" * 20)
    with zipfile.ZipFile(folder / "no-text.zip", "w") as archive:
        archive.writestr("notes.md", "A line.\n")
    (folder / "text.txt.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"compressed")
    (folder / "packed.txt").write_bytes(gzip.compress(b"A line.\n"))
    (folder / "notes").mkdir()
    (folder / "notes" / "notes.md").write_text("A line.\n")
    tarred(folder / "notes", folder / "no-text.tar")
    (folder / "notes" / "a.txt").write_text("A line.\n")
    tarred(folder / "notes", folder / "some-text.tar")
    for name in ("mixed", "linked", "hard-linked"):
        (folder / name).mkdir()
        shutil.copy(text, folder / name / "a.txt")
    (folder / "mixed" / "b.txt.gz").write_bytes(gzip.compress(b"A line.\n"))
    shutil.make_archive(str(folder / "mixed"), "zip", folder / "mixed")
    (folder / "linked" / "b.txt").symlink_to("a.txt")
    (folder / "hard-linked" / "b.txt").hardlink_to(folder / "hard-linked" / "a.txt")
    for archive in ("mixed.tar", "linked.tar", "hard-linked.tar.gz"):
        tarred(folder / archive.split(".")[0], folder / archive)
    (folder / "linked-folder").mkdir()
    shutil.copy(text, folder / "linked-folder")
    (folder / "linked-folder" / "more").symlink_to(folder / "books")
    (folder / "missing").mkdir()
    shutil.copy(text, folder / "missing")
    (folder / "missing" / "gone").symlink_to(folder / "nowhere")
    (folder / "vocab.txt").write_text("the\ncat\n")
    for name in ("news.jsonl", "news.jsonl.zst", "news.parquet", "part.gz", "stories.tar.gz"):
        (folder / f"with-{name}").mkdir()
        shutil.copy(text, folder / f"with-{name}")
        (folder / f"with-{name}" / name).write_bytes(gzip.compress(b"A line.\n"))
    (folder / "wikitext.parquet").write_bytes(b"PAR1\x15")
    return folder


@pytest.mark.parametrize(
    ("words", "named"),
    [
        # Another text than the corpus.
        ("wikitext-103 --archive wikitext-103-v1.zip", "SHA-256"),
        ("wikitext-103 --from-folder text", "wiki.train.tokens"),
        ("wikitext-103 --from-folder books", "wiki.train.tokens is missing"),
        ("wikitext-103 --archive wikitext.parquet", "If it is in .parquet, data-prep/wikitext-103"),
        ("bookcorpus text.txt", "not the Toronto BookCorpus"),
        # Damaged texts, and other formats and encodings.
        ("wikitext-103 --archive cut.zip --allow-other-text", "cut.zip is damaged"),
        ("wikitext-103 --from-folder latin --allow-other-text", "wiki.valid.tokens is damaged"),
        ("text latin", "latin.txt is damaged, truncated, or not UTF-8 text"),
        ("cc100-roberta text.txt text.txt.zst", "compressed (.zst)"),
        ("cc100-roberta text.txt packed.txt", "compressed (.gz)"),
        # No text, or too little.
        ("text nowhere", "nowhere cannot be used (No such file or directory)"),
        ("text empty", "empty: no files *.txt"),
        ("cc100-roberta text.txt no-text.zip", "no-text.zip has no member *.txt"),
        ("bookcorpus books no-text.tar", "no-text.tar has no member *.txt"),
        ("text linked-folder", "more is a link to a folder"),
        ("text missing", "gone is a link to a missing file"),
        ("cc100-roberta text.txt with-news.jsonl", "with-news.jsonl/news.jsonl would be left out"),
        ("cc100-roberta with-news.jsonl.zst", "news.jsonl.zst would be left out"),
        ("cc100-roberta with-news.parquet", "news.parquet would be left out"),
        ("text with-part.gz", "part.gz would be left out"),
        ("bookcorpus with-stories.tar.gz", "stories.tar.gz would be left out"),
        ("text text.txt no-text.zip", "no-text.zip: notes.md would be left out"),
        ("text some-text.tar", "some-text.tar: notes/notes.md would be left out"),
        ("cc100-roberta mixed.zip", "mixed.zip: b.txt.gz would be left out"),
        ("cc100-roberta mixed.tar", "mixed.tar: mixed/b.txt.gz would be left out"),
        ("text hard-linked.tar.gz", "hard-linked.tar.gz: hard-linked/b.txt is a link"),
        ("bookcorpus linked.tar", "linked.tar: linked/b.txt is a link"),
        ("text short.txt", "valid and test"),
        ("text equal-lines.txt", "left for test"),
        ("bookcorpus one", "left for train and test"),
        ("bookcorpus short.txt --allow-other-text", "left for valid and test"),
        ("cc100-roberta text.txt --valid-tokens 100000", "--valid-tokens"),
        # Options.
        ("bookcorpus books --held-out 0", "--held-out"),
        ("bookcorpus books --held-out 10", "--vocab-size"),
        ("bookcorpus books --wordpiece vocab.txt", "vocab.txt is not a BERT vocabulary"),
        ("cc100-roberta text.txt --encoder-json text.txt", "--vocab-bpe"),
    ],
)
def test_prepare(inputs, tmp_path, monkeypatch, refuse, words, named):
    monkeypatch.chdir(inputs)
    out = tmp_path / "out"
    assert named in refuse("prepare", *words.split(), "--out", out, "--workers", 1)
    # Input that is rejected before the whole text has been read leaves no files.
    assert not (out / "data-bin").exists()
    assert (out / "work").exists() == (named == "--vocab-size")


@pytest.mark.parametrize(
    ("out", "file", "named"),
    [
        (".", None, "--out . is inside"),
        ("texts/out", None, "--out texts/out is inside"),
        ("other", "other/data-bin/train.bin", "has no manifest.json"),
        ("other", "other/work/thesis.tex", "work exists but has no settings.json"),
    ],
)
def test_prepare_keeps_other_files(tmp_path, monkeypatch, refuse, out, file, named):
    monkeypatch.chdir(tmp_path)
    Path("texts").mkdir()
    Path("texts", "text.txt").write_text("A line.\n" * 2000)
    if file:
        Path(file).parent.mkdir(parents=True)
        Path(file).write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    assert named in refuse("prepare", "text", "." if out == "." else "texts", "--out", out)
    assert sorted(tmp_path.rglob("*")) == before
    if file:
        assert Path(file).read_text() == "precious"


def test_prepare_needs_free_space(inputs, tmp_path, monkeypatch, refuse):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    words = ["prepare", "text", inputs / "text.txt", "--out", tmp_path / "out"]
    assert "but only 0.0 GB are free there" in refuse(*words)
    assert not (tmp_path / "out").exists()
