import functools
import hashlib
import json
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fairseq.data import Dictionary
from preparations import stored, wikitext_zip

from alibi_fairseq.data import wikitext103
from alibi_fairseq.data.pipeline import SPLITS, prepare
from alibi_fairseq.data.sources import download
from alibi_fairseq.data.wikitext103 import WikiText103, count_words
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import sha256_file


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    return wikitext_zip(folder / "wikitext-103-v1.zip", folder / "text")


@pytest.fixture(scope="module")
def prepared(archive, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    manifest, done = prepare(WikiText103(archive, allow_other_text=True), out)
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
        found, sizes = stored(out / "data-bin", split)
        known = [[w if w in dictionary else "<unk>" for w in line.split()] for line in lines]
        assert [line.split() for line in found] == known
        assert counts == {
            "lines": len(lines),
            "words": len(text.split()),
            "bytes": len(text.encode()),
            "tokens": sum(sizes),
        }


def test_manifest_of_other_text_never_says_wikitext(prepared):
    written = (prepared[0] / "data-bin" / "manifest.json").read_text().lower()
    assert json.loads(written)["corpus"] == "other-text"
    assert "wikitext" not in written.replace("-", "").replace("_", "")


def test_genuine_text_is_called_by_its_name(prepared, archive, tmp_path, monkeypatch):
    """With the published figures replaced by those of the small text."""
    folder = archive.parent / "text"
    counts = {s: count_words(folder / f"wiki.{s}.tokens") for s in SPLITS}
    monkeypatch.setattr(wikitext103, "ZIP_SHA256", sha256_file(archive))
    monkeypatch.setattr(wikitext103, "LINES", {s: c["lines"] for s, c in counts.items()})
    monkeypatch.setattr(wikitext103, "TOKENS", {s: c["tokens"] for s, c in counts.items()})
    fetched = tmp_path / "served.zip"
    shutil.copy(archive, fetched)
    monkeypatch.setattr(wikitext103, "download", lambda mirrors, _: (fetched, next(iter(mirrors))))
    text = WikiText103(mirror=["https://example.org/wikitext-103-v1.zip"])
    with pytest.raises(BadInput, match=r"dictionary has [\d,]+ entries, expected 267,744"):
        prepare(text, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    entries = prepared[1]["dictionary"]["entries"]
    monkeypatch.setattr(wikitext103, "DICTIONARY", (entries + 1, entries))
    manifest, _ = prepare(text, tmp_path / "out")
    assert manifest["corpus"] == "wikitext-103"
    assert manifest["identified_by"] == "archive hash, lines, tokens and dictionary size"
    assert manifest["sources"][0]["url"] == text.mirror[0]
    assert manifest["dictionary"]["entries"] == entries
    assert not prepare(WikiText103(archive), tmp_path / "out")[1]


@pytest.fixture
def server(archive, monkeypatch):
    """A server on this machine with a good archive and a cut one."""
    (archive.parent / "cut.zip").write_bytes(archive.read_bytes()[:-100])
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(archive.parent))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_bad_mirrors_are_passed_over(server, archive, tmp_path, capsys, algorithm):
    (tmp_path / "download.part.0123.partial").touch()  # of a download that was killed
    expected = hashlib.new(algorithm, archive.read_bytes()).hexdigest()
    mirrors = {f"{server}/{name}": expected for name in ("gone.zip", "cut.zip", archive.name)}
    path, url = download({"nowhere": expected, **mirrors}, tmp_path)
    assert path.read_bytes() == archive.read_bytes() and url.endswith(archive.name)
    said = capsys.readouterr().err
    assert "gone.zip: HTTP Error 404" in said and f"expected {expected}" in said
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]
    assert download({f"http://127.0.0.1:9/{archive.name}": expected}, tmp_path)[0] == path


def test_when_no_mirror_works_nothing_stays(server, tmp_path):
    with pytest.raises(BadInput, match="--archive"):
        download({f"{server}/cut.zip": "0" * 64, "http://127.0.0.1:9/x.zip": "0" * 64}, tmp_path)
    assert list(tmp_path.iterdir()) == []
