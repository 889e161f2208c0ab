import json

import pytest
from fairseq.data import Dictionary
from preparations import stored, wikitext_zip

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
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = prepare_corpus(WikiText103(archive, allow_other_text=True), out)
    assert done
    return out, manifest


def test_wikitext_data_holds_the_text(prepared, archive):
    out, manifest = prepared
    assert [path.name for path in out.iterdir()] == ["data-bin"]
    dictionary = Dictionary.load(str(out / "data-bin" / "dict.txt"))
    assert manifest["dictionary"]["entries"] == len(dictionary)
    for split, counts in manifest["splits"].items():
        text = (archive.parent / "text" / f"wiki.{split}.tokens").read_text(encoding="utf-8")
        lines = text.split("\n")[:-1]
        stored_lines, sizes = stored(out / "data-bin", split)
        known = [[w if w in dictionary else "<unk>" for w in line.split()] for line in lines]
        assert [line.split() for line in stored_lines] == known
        assert counts == {
            "lines": len(lines),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": sum(sizes),
        }


def test_manifest_never_names_other_text_wikitext(prepared):
    written = (prepared[0] / "data-bin" / "manifest.json").read_text().lower()
    assert json.loads(written)["corpus"] == "other-text"
    assert "wikitext" not in written.replace("-", "").replace("_", "")


def test_genuine_wikitext_is_downloaded_and_named(prepared, archive, tmp_path, monkeypatch):
    """The published sizes are replaced by those of the small text."""
    folder = archive.parent / "text"
    counts = {s: count_words(folder / f"wiki.{s}.tokens") for s in SPLITS}
    monkeypatch.setattr(wikitext103, "LINES", {s: c["lines"] for s, c in counts.items()})
    monkeypatch.setattr(wikitext103, "TOKENS", {s: c["tokens"] for s, c in counts.items()})
    monkeypatch.setattr(wikitext103, "URL", archive.as_uri())
    with pytest.raises(UserInputError, match=r"invalid hash value.* with --archive FILE"):
        prepare_corpus(WikiText103(), tmp_path / "out")
    monkeypatch.setattr(wikitext103, "ZIP_SHA256", sha256_file(archive))
    with pytest.raises(UserInputError, match=r"dictionary has [\d,]+ entries, expected 267,744"):
        prepare_corpus(WikiText103(), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    entries = prepared[1]["dictionary"]["entries"]
    monkeypatch.setattr(wikitext103, "DICTIONARY", entries)
    manifest, _ = prepare_corpus(WikiText103(), tmp_path / "out")
    assert manifest["corpus"] == "wikitext-103"
    assert manifest["identified_by"] == "archive hash, lines, tokens and dictionary size"
    assert manifest["sources"][0]["url"] == archive.as_uri()
    assert manifest["dictionary"]["entries"] == entries
    assert not prepare_corpus(WikiText103(archive), tmp_path / "out")[1]
