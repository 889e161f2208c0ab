"""Preparation of WikiText-103."""

from __future__ import annotations

import json
import re
import sys
from types import SimpleNamespace

import pytest
from commands import ROOT
from fairseq.data import Dictionary
from preparations import stored, wikitext_files, wikitext_zip

from alibi_fairseq.data import wikitext103
from alibi_fairseq.data.corpus_builder import SPLITS
from alibi_fairseq.data.pipeline import prepare_corpus
from alibi_fairseq.data.wikitext103 import WikiText103, count_words
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import sha256_file


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    return wikitext_zip(folder / "wikitext-103-v1.zip", folder / "text")


@pytest.fixture(scope="module")
def prepared(archive, tmp_path_factory):
    """Return the output folder and the manifest of a small text."""
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = prepare_corpus(WikiText103(archive, allow_other_text=True), out)
    assert done
    return out, manifest


def test_wikitext_data_contains_text(prepared, archive):
    out, manifest = prepared
    assert [path.name for path in out.iterdir()] == ["data-bin"]
    dictionary = Dictionary.load(str(out / "data-bin" / "dict.txt"))
    assert manifest["dictionary"]["entries"] == len(dictionary)
    for split, counts in manifest["splits"].items():
        text = (archive.parent / "text" / f"wiki.{split}.tokens").read_text(encoding="utf-8")
        lines = text.split("\n")[:-1]
        stored_lines, sizes = stored(out / "data-bin", split)
        expected = []
        unknown = 0
        for line in lines:
            expected.append([word if word in dictionary else "<unk>" for word in line.split()])
            unknown += sum(word not in dictionary for word in line.split())
        assert (unknown > 0) == (split != "train")
        assert [line.split() for line in stored_lines] == expected
        assert counts == {
            "lines": len(lines),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": sum(sizes),
            "unknown": unknown,
        }


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_count_as_one_byte(tmp_path, end):
    path = tmp_path / "wiki.test.tokens"
    lines = [" = Title = ", "", " naïve € "]
    path.write_bytes(end.join(lines).encode() + end.encode())
    size = len("\n".join(lines).encode()) + 1
    assert count_words(path) == {"lines": 3, "words": 5, "bytes": size, "tokens": 8}
    path.write_bytes(end.join(lines).encode())
    assert count_words(path)["bytes"] == size - 1


def test_moved_boundary_between_splits_is_other_text(tmp_path):
    paths = wikitext_files(tmp_path / "text")
    corpus = WikiText103(from_folder=tmp_path / "text", allow_other_text=True)
    prepare_corpus(corpus, tmp_path / "out")
    lines = paths["train"].read_bytes().splitlines(keepends=True)
    paths["train"].write_bytes(b"".join(lines[:-100]))
    paths["valid"].write_bytes(b"".join(lines[-100:]) + paths["valid"].read_bytes())
    corpus = WikiText103(from_folder=tmp_path / "text", allow_other_text=True)
    with pytest.raises(UserInputError, match="files differs"):
        prepare_corpus(corpus, tmp_path / "out")


def test_manifest_never_names_other_text_wikitext(prepared):
    out, _ = prepared
    written = (out / "data-bin" / "manifest.json").read_text().lower()
    assert json.loads(written)["corpus"] == "other-text"
    assert "wikitext" not in written.replace("-", "").replace("_", "")


@pytest.fixture
def small_sizes(archive, monkeypatch):
    """Replace the published lines and tokens with those of the small text."""
    folder = archive.parent / "text"
    lines = {}
    tokens = {}
    for split in SPLITS:
        counts = count_words(folder / f"wiki.{split}.tokens")
        lines[split] = counts["lines"]
        tokens[split] = counts["tokens"]
    monkeypatch.setattr(wikitext103, "LINES", lines)
    monkeypatch.setattr(wikitext103, "TOKENS", tokens)


@pytest.mark.usefixtures("small_sizes")
def test_genuine_wikitext_is_downloaded_and_named(prepared, archive, tmp_path, monkeypatch):
    monkeypatch.setattr(wikitext103, "URL", archive.as_uri())
    with pytest.raises(UserInputError, match=r"invalid hash value.* with --archive FILE"):
        prepare_corpus(WikiText103(), tmp_path / "out")
    monkeypatch.setattr(wikitext103, "ZIP_SHA256", sha256_file(archive))
    with pytest.raises(UserInputError, match=r"dictionary has [\d,]+ entries, expected 267,744"):
        prepare_corpus(WikiText103(), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    _, small_manifest = prepared
    entries = small_manifest["dictionary"]["entries"]
    monkeypatch.setattr(wikitext103, "DICTIONARY", entries)
    manifest, _ = prepare_corpus(WikiText103(), tmp_path / "out")
    assert manifest["corpus"] == "wikitext-103"
    assert "unknown" not in manifest["splits"]["test"]
    assert manifest["identified_by"] == "archive hash, lines, tokens and dictionary size"
    assert manifest["sources"][0]["url"] == archive.as_uri()
    assert manifest["dictionary"]["entries"] == entries
    _, done = prepare_corpus(WikiText103(archive), tmp_path / "out")
    assert not done


@pytest.fixture
def hugging_face(archive, monkeypatch):
    """Return the rows of the text by split, as Hugging Face has them, and fake its library."""
    splits = {"train": "train", "validation": "valid", "test": "test"}
    rows = {}
    for name, split in splits.items():
        text = (archive.parent / "text" / f"wiki.{split}.tokens").read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        rows[name] = [{"text": line if line.strip() else ""} for line in lines]
    library = SimpleNamespace(load_dataset=lambda path, config, split: rows[split])
    monkeypatch.setitem(sys.modules, "datasets", library)
    return rows


@pytest.mark.usefixtures("small_sizes", "hugging_face")
def test_documented_export_from_hugging_face_is_genuine(prepared, tmp_path, monkeypatch):
    out, manifest = prepared
    monkeypatch.setattr(wikitext103, "DICTIONARY", manifest["dictionary"]["entries"])
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "data-prep" / "wikitext-103" / "README.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], {})
    described, _ = prepare_corpus(WikiText103(from_folder="wikitext-103"), tmp_path / "out")
    assert described["corpus"] == "wikitext-103"
    for name in ("train.bin", "valid.bin", "test.bin", "dict.txt"):
        expected = (out / "data-bin" / name).read_bytes()
        assert (tmp_path / "out" / "data-bin" / name).read_bytes() == expected


@pytest.mark.usefixtures("small_sizes")
@pytest.mark.parametrize("end", ["", "\n"])
def test_export_with_other_line_ends_is_told_how_to_repair(hugging_face, tmp_path, end):
    for name, split in (("train", "train"), ("validation", "valid"), ("test", "test")):
        text = end.join(row["text"] for row in hugging_face[name])
        (tmp_path / f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    with pytest.raises(UserInputError, match="Write each row of an export as one line") as error:
        prepare_corpus(WikiText103(from_folder=tmp_path), tmp_path / "out")
    assert "--allow-other-text" not in str(error.value)
