import json
import shutil

import pytest
from fairseq.data import Dictionary, data_utils
from killing import files_of, killed_at
from preparations import wikitext_files, wikitext_zip

from alibi_fairseq.dataprep import wikitext103
from alibi_fairseq.dataprep.download import Mirror
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import sha256_file


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    return wikitext_zip(folder / "wikitext-103-v1.zip", folder / "text")


@pytest.fixture(scope="module")
def prepared(archive, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = wikitext103.prepare(out, archive=archive, allow_other_text=True)
    assert done
    return out, manifest


def test_binary_data_holds_the_text(prepared, archive):
    out, manifest = prepared
    assert [path.name for path in out.iterdir()] == ["data-bin"]
    dictionary = Dictionary.load(str(out / "data-bin" / "dict.txt"))
    assert manifest["dictionary"]["entries"] == len(dictionary)
    for split, counts in manifest["splits"].items():
        text = (archive.parent / "text" / f"wiki.{split}.tokens").read_text(encoding="utf-8")
        lines = text.split("\n")[:-1]
        items = data_utils.load_indexed_dataset(str(out / "data-bin" / split), dictionary)
        known = [[w if w in dictionary else "<unk>" for w in line.split()] for line in lines]
        assert [dictionary.string(item).split() for item in items] == known
        assert counts == {
            "lines": len(lines),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": int(items.sizes.sum()),
        }


def test_manifest_of_other_text_never_says_wikitext(prepared):
    written = (prepared[0] / "data-bin" / "manifest.json").read_text().lower()
    assert json.loads(written)["corpus"] == "other-text"
    assert "wikitext" not in written.replace("-", "").replace("_", "")


def test_second_run_does_nothing(prepared, archive, monkeypatch):
    def fail(*_, **__):
        raise AssertionError

    out, manifest = prepared
    monkeypatch.setattr(wikitext103, "binarise", fail)
    again, done = wikitext103.prepare(out, archive=archive, allow_other_text=True)
    assert not done
    assert again == json.loads(json.dumps(manifest))


def test_folder_gives_the_same_text_as_the_archive(archive, tmp_path, monkeypatch):
    seen = []

    def stop(texts, *_, **__):
        seen.append({split: path.read_bytes() for split, path in texts.items()})
        raise InterruptedError  # before fairseq-preprocess

    monkeypatch.setattr(wikitext103, "binarise", stop)
    for number, source in enumerate(({"archive": archive}, {"from_dir": archive.parent / "text"})):
        with pytest.raises(InterruptedError):
            wikitext103.prepare(tmp_path / str(number), allow_other_text=True, **source)
    assert seen[0] == seen[1]


@pytest.mark.slow
def test_killed_again_and_again_gives_the_same_bytes(prepared, archive, tmp_path):
    """Each run gets a little further than the one before, and is killed there."""
    settings = dict(archive=archive, allow_other_text=True)
    kills = 0
    while killed_at(kills + 1, kills % 2 == 0, wikitext103.prepare, tmp_path, **settings):
        kills += 1
    assert kills >= 3
    assert files_of(tmp_path) == files_of(prepared[0])


def test_genuine_text_is_called_by_its_name(archive, tmp_path, monkeypatch):
    """With the published figures replaced by those of the small text."""
    folder = archive.parent / "text"
    counts = {s: wikitext103._count(folder, s, True) for s in wikitext103.SPLITS}
    monkeypatch.setattr(wikitext103, "ZIP_SHA256", sha256_file(archive))
    monkeypatch.setattr(wikitext103, "LINES", {s: c["lines"] for s, c in counts.items()})
    monkeypatch.setattr(wikitext103, "TOKENS", {s: c["tokens"] for s, c in counts.items()})
    fetched = tmp_path / "served.zip"
    shutil.copy(archive, fetched)
    monkeypatch.setattr(
        wikitext103, "download", lambda m, _: (fetched, m[0]) if m == mirrors else None
    )
    mirrors = [Mirror("https://example.org/wikitext-103-v1.zip", "sha256", "0")]
    with pytest.raises(BadInput, match=r"dictionary has [\d,]+ entries, expected 267,744"):
        wikitext103.prepare(tmp_path / "out", mirrors=mirrors)
    assert not (tmp_path / "out" / "data-bin").exists()
    entries = wikitext103._dictionary_entries(tmp_path / "out" / "work" / "data-bin")
    monkeypatch.setattr(wikitext103, "DICTIONARY", (entries + 1, entries))
    manifest, _ = wikitext103.prepare(tmp_path / "out", mirrors=mirrors)
    assert manifest["corpus"] == "wikitext-103"
    assert manifest["identified_by"] == "archive hash, lines, tokens and dictionary size"
    assert manifest["sources"][0]["url"] == mirrors[0].url
    assert manifest["dictionary"]["entries"] == entries
    assert not wikitext103.prepare(tmp_path / "out", archive=archive)[1]


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda folder: (folder / "wiki.test.tokens").unlink(), r"wiki\.test\.tokens is missing"),
        (lambda folder: (folder / "wiki.valid.tokens").write_text("\n"), "no words in it"),
        (
            lambda folder: (folder / "wiki.valid.tokens").write_bytes(b"\xff\xfe\n"),
            "is not UTF-8 text",
        ),
    ],
)
def test_bad_folders_leave_nothing(tmp_path, damage, words):
    wikitext_files(tmp_path / "in")
    damage(tmp_path / "in")
    with pytest.raises(BadInput, match=words):
        wikitext103.prepare(tmp_path / "out", from_dir=tmp_path / "in", allow_other_text=True)
    assert not (tmp_path / "out").exists()


def test_what_is_not_wikitext_is_refused_with_both_values(archive, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(BadInput, match=f"SHA-256 is {sha256_file(archive)}, expected 242ba0f"):
        wikitext103.prepare(out, archive=archive)
    with pytest.raises(BadInput, match=r"wiki\.train\.tokens has 403 lines, expected 1,801,350"):
        wikitext103.prepare(out, from_dir=archive.parent / "text")
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive.read_bytes()[:-100])
    with pytest.raises(BadInput, match=r"neither a \.zip nor a \.tar"):
        wikitext103.prepare(out, archive=cut, allow_other_text=True)
    with pytest.raises(BadInput, match="two sources"):
        wikitext103.prepare(out, archive=cut, from_dir=tmp_path)
    with pytest.raises(BadInput, match="no such file"):
        wikitext103.prepare(out, archive=tmp_path / "none.zip")
    assert not out.exists()
