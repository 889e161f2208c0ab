"""Binarization compared with fairseq-preprocess, and the working folder of a preparation."""

from __future__ import annotations

import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from commands import in_process
from conftest import damage_index
from fairseq.data import indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from fairseq.tasks import FairseqTask
from preparations import sentences

from alibi_fairseq.data import binarization, pipeline
from alibi_fairseq.data.binarization import binarize, text_parts
from alibi_fairseq.data.custom_text import CustomTextBuilder
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.sources import single_spaced
from alibi_fairseq.data.tokenization import Words, train_sentencepiece
from alibi_fairseq.data.wikitext103 import count_words
from alibi_fairseq.data.worker_pool import map_in_order
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import locked

UNUSUAL_LINES = [
    "",
    " two  words\t",
    "<unk> </s> <s> <pad> of",
    "naïve € 日本\x85and\u2028 so",
    "a\r",
    "of the",
]


@pytest.mark.parametrize("kind", ["words", "sentencepiece"])
@pytest.mark.parametrize("workers", [1, 2])
def test_binarize_equals_fairseq_preprocess(tmp_path, monkeypatch, kind, workers):
    monkeypatch.setattr(binarization, "_PART_BYTES", (2000, 2000))
    texts = {
        "train": sentences(1, 300) + UNUSUAL_LINES,
        "valid": UNUSUAL_LINES[::-1] + sentences(2, 30),
    }
    if kind != "words":
        texts = {split: [single_spaced(line) for line in lines] for split, lines in texts.items()}
    splits = {split: tmp_path / f"{split}.txt" for split in texts}
    for split, path in splits.items():
        path.write_text("\n".join(texts[split]), encoding="utf-8", newline="")
    if kind == "words":
        FairseqTask.build_dictionary([str(splits["train"])]).save(str(tmp_path / "dict.txt"))
        tokenizer = Words(tmp_path / "dict.txt")
        flags = []
    else:
        tokenizer = train_sentencepiece(texts["train"], tmp_path / "sp.model", 400)
        tokenizer.write_dictionary(tmp_path / "dict.txt")
        flags = ["--srcdict", str(tmp_path / "dict.txt")]
    parts = []
    for split, path in splits.items():
        parts += text_parts(path, split)
    totals = binarize(parts, tmp_path / "parts", tmp_path / "ours", tokenizer, workers)
    for split, path in splits.items():
        if kind == "words":
            flags += [f"--{split}pref", str(path)]
            counts = count_words(path)
            for name in ("lines", "words", "tokens"):
                assert counts[name] == totals[split][name]
        else:
            lines = path.read_text(encoding="utf-8").split("\n")
            pieces = (" ".join(tokenizer.names[i] for i in ids) for ids in tokenizer.encode(lines))
            (tmp_path / f"{split}.pieces").write_text("\n".join(pieces) + "\n")
            flags += [f"--{split}pref", str(tmp_path / f"{split}.pieces")]
    for name in ("__init__", "finalize"):  # as fairseq has them, without our workarounds
        method = getattr(MMapIndexedDatasetBuilder, name)
        monkeypatch.setattr(MMapIndexedDatasetBuilder, name, method.__wrapped__)
    in_process("preprocess", "--only-source", "--destdir", tmp_path / "fairseq", *flags)
    for split in splits:
        for suffix in (".bin", ".idx"):
            ours = tmp_path / "ours" / f"{split}{suffix}"
            expected = tmp_path / "fairseq" / f"{split}{suffix}"
            assert ours.read_bytes() == expected.read_bytes()
    assert (tmp_path / "dict.txt").read_bytes() == (tmp_path / "fairseq/dict.txt").read_bytes()
    assert not [path for path in (tmp_path / "parts").iterdir() if path.suffix != ".json"]


def test_unknown_words_are_counted(tmp_path):
    (tmp_path / "dict.txt").write_text("a 2\nb 1\n")
    (tmp_path / "text").write_text("a b c\n\n<unk> a\n")
    words = Words(tmp_path / "dict.txt")
    parts = text_parts(tmp_path / "text", "test")
    counts = binarize(parts, tmp_path / "parts", tmp_path / "out", words, 1)["test"]
    assert counts == {"lines": 3, "words": 5, "bytes": 15, "tokens": 8, "unknown": 2, "items": 3}


@pytest.mark.parametrize("workers", [1, 2])
def test_index_of_large_data_does_not_overflow(tmp_path, workers):
    """Parts of 800 MB each are 4.8 GB, of which only the indexes exist here."""
    prefixes = [tmp_path / f"part{number}" for number in range(6)]
    for prefix in prefixes:
        prefix.with_suffix(".bin").touch()
        with MMapIndexedDataset.Index.writer(f"{prefix}.idx", np.uint16) as index:
            index.write([400_000_000])
    targets = [("train", prefixes), ("valid", [])]
    for _ in map_in_order(binarization._join_parts, targets, workers, tmp_path, tmp_path, 1000):
        pass
    joined = MMapIndexedDataset.Index(str(tmp_path / "train.idx"))
    assert joined._pointers.tolist() == [800_000_000 * number for number in range(6)]


def test_index_of_many_lines_needs_little_memory(tmp_path, monkeypatch):
    """fairseq itself needs 80 bytes per line, which are 6 GB for the Toronto BookCorpus."""
    lines = 200_000
    monkeypatch.setattr(indexed_dataset, "_warmup_mmap_file", lambda path: None)  # 100 MB
    (tmp_path / "part0.bin").touch()
    with MMapIndexedDataset.Index.writer(f"{tmp_path / 'part0'}.idx", np.uint16) as index:
        index.write([10] * lines)
    tracemalloc.start()
    try:
        binarization._join_parts(tmp_path, tmp_path, 1000, ("train", [tmp_path / "part0"]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 40 * lines
    joined = MMapIndexedDataset.Index(str(tmp_path / "train.idx"))
    assert joined[lines - 1] == (20 * (lines - 1), 10)


def test_rerun_rejects_damaged_index(tmp_path):
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)
    corpus = CustomTextBuilder([tmp_path / "text.txt"], "words")
    prepare_corpus(corpus, tmp_path)
    assert not prepare_corpus(corpus, tmp_path)[1]
    damage_index(tmp_path / "data-bin" / "valid.idx")
    with pytest.raises(UserInputError, match=r"data-bin/valid\.idx is damaged, .* Delete"):
        prepare_corpus(corpus, tmp_path)


def test_files_are_on_the_disk_before_they_are_recorded_as_complete(tmp_path, monkeypatch):
    """A crash of the machine loses what was not flushed."""
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)
    fsync = os.fsync
    replace = os.replace
    flushed = set()
    flushed_before = {}

    def note_flush(number):
        flushed.add(Path(os.readlink(f"/proc/self/fd/{number}")).name)
        fsync(number)

    def note_name(source, target):
        flushed_before[Path(target).name] = set(flushed)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_flush)
    monkeypatch.setattr(os, "replace", note_name)
    out = tmp_path / "out"
    prepare_corpus(CustomTextBuilder([tmp_path / "text.txt"], "words"), out, workers=1)
    assert {"train.txt", "valid.txt"} <= flushed_before["text.json"]
    assert {"part000000.bin", "part000000.idx"} <= flushed_before["part000000.json"]
    assert {"train.bin", "train.idx"} <= flushed_before["train.json"]
    assert {path.name for path in (out / "data-bin").iterdir()} <= flushed_before["data-bin"]


@pytest.fixture
def interrupted(tmp_path, monkeypatch):
    """Return a function that interrupts a preparation after the text has been read."""
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)

    def run(seed: int):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(pipeline, "binarize", interrupt)
            prepare_corpus(CustomTextBuilder([tmp_path / "text.txt"], "words", seed=seed), tmp_path)

    return run


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_manifest_does_not_list_one_of_an_interrupted_preparation(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)
    corpus = CustomTextBuilder([tmp_path / "text.txt"], "words")
    replace = os.replace

    def interrupted_replace(source, target):
        if Path(target).name == "data-bin":
            interrupt()
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", interrupted_replace)
        prepare_corpus(corpus, tmp_path)
    assert (tmp_path / "work" / "data-bin" / "manifest.json").exists()
    manifest, _ = prepare_corpus(corpus, tmp_path)
    published = {path.name for path in (tmp_path / "data-bin").iterdir()}
    assert manifest["files"].keys() == published - {"manifest.json"}


def test_work_folder_rejects_other_settings(interrupted, tmp_path, monkeypatch):
    interrupted(1)
    with pytest.raises(UserInputError, match="unfinished"):
        interrupted(2)
    with (
        locked(tmp_path / "work" / "lock", "--out", "preparation"),
        pytest.raises(UserInputError, match="another preparation"),
    ):
        interrupted(1)
    # The text is not read again, and the rejected preparations released the lock.
    monkeypatch.setattr(CustomTextBuilder, "write_normalized_text", None)
    interrupted(1)


def test_resumed_preparation_needs_less_free_space(interrupted, tmp_path, monkeypatch):
    needed = CustomTextBuilder.disk * 8 * 2000
    # The interrupted preparation has written all.txt and the splits.
    interrupted(1)
    usage = type("Usage", (), {"free": needed - 2 * 8 * 2000 + 100})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    interrupted(1)
    with pytest.raises(UserInputError, match="are free there"):
        prepare_corpus(CustomTextBuilder([tmp_path / "text.txt"], "words"), tmp_path / "other")


def test_prepare_keeps_foreign_work_folder(tmp_path):
    (tmp_path / "text.txt").write_text("A line.\n" * 2000)
    thesis = tmp_path / "work" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("Chapter 1")
    corpus = CustomTextBuilder([tmp_path / "text.txt"], "words")
    for settings in (None, "[1]", "{ // no JSON"):
        if settings is not None:
            (tmp_path / "work" / "settings.json").write_text(settings)
        with pytest.raises(UserInputError, match=r"work exists but has no settings\.json of this"):
            prepare_corpus(corpus, tmp_path)
    assert thesis.read_text() == "Chapter 1"


def test_text_inside_work_folder_is_rejected(interrupted, tmp_path):
    interrupted(1)
    text = tmp_path / "work" / "raw" / "text.txt"
    text.parent.mkdir()
    text.write_text("A line.\n" * 2000)
    with pytest.raises(UserInputError, match=r"text\.txt is inside .*work, which"):
        prepare_corpus(CustomTextBuilder([text.parent], "words", seed=1), tmp_path)
    assert text.exists()


def test_rerun_deletes_only_its_own_work_folder(interrupted, tmp_path, monkeypatch):
    interrupted(1)
    corpus = CustomTextBuilder([tmp_path / "text.txt"], "words", seed=1)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shutil, "rmtree", interrupt)
        prepare_corpus(corpus, tmp_path)
    assert (tmp_path / "work").exists()
    assert not prepare_corpus(corpus, tmp_path)[1]
    assert not (tmp_path / "work").exists()
    notes = tmp_path / "work" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("precious")
    assert not prepare_corpus(corpus, tmp_path)[1]
    assert notes.read_text() == "precious"
