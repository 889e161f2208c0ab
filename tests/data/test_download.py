"""Downloads from servers on this machine: good, bad, slow-witted and breaking off."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from alibi_fairseq.data.download import download
from alibi_fairseq.errors import BadInput

CONTENT = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Server(BaseHTTPRequestHandler):
    """The first part of the path says how it behaves."""

    requests: list = []

    def do_GET(self):
        behaviour = self.path.split("/")[1]
        asked = self.headers.get("Range")
        self.requests.append((behaviour, asked))
        if behaviour == "gone" or "alibi-fairseq" not in self.headers["User-Agent"]:
            return self.send_error(403)
        content = b"x" + CONTENT[1:] if behaviour == "wrong" else CONTENT
        start = int(asked[6:-1]) if asked and behaviour != "no-ranges" else 0
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        breaks = behaviour in ("breaks", "no-ranges") and len(self.requests) == 1
        end = start + 300_000 if breaks or behaviour == "stutters" else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *_):
        pass


@pytest.fixture
def address():
    Server.requests.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def mirrors(address, *behaviours):
    return {f"{address}/{b}/corpus.zip": DIGEST for b in behaviours}


def test_good_mirror_serves_the_file_once(address, tmp_path):
    for _ in range(2):
        path, url = download(mirrors(address, "good"), tmp_path)
        assert path.read_bytes() == CONTENT
    assert Server.requests == [("good", "bytes=0-")]
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.zip"]
    assert url == f"{address}/good/corpus.zip"


@pytest.mark.parametrize("behaviour", ["breaks", "stutters"])
def test_broken_connection_goes_on_where_it_broke(address, tmp_path, behaviour):
    path, _ = download(mirrors(address, behaviour), tmp_path)
    assert path.read_bytes() == CONTENT
    assert Server.requests[:2] == [(behaviour, "bytes=0-"), (behaviour, "bytes=300000-")]


def test_server_without_ranges_begins_again(address, tmp_path):
    path, _ = download(mirrors(address, "no-ranges"), tmp_path)
    assert path.read_bytes() == CONTENT


def test_earlier_run_is_continued_also_when_it_had_everything(address, tmp_path):
    (tmp_path / "corpus.zip.part").write_bytes(CONTENT[:1000])
    assert download(mirrors(address, "good"), tmp_path)[0].read_bytes() == CONTENT
    assert Server.requests == [("good", "bytes=1000-")]
    (tmp_path / "corpus.zip").rename(tmp_path / "corpus.zip.part")
    assert download(mirrors(address, "good"), tmp_path)[0].read_bytes() == CONTENT


def test_bad_mirrors_are_passed_over(address, tmp_path, capsys):
    path, url = download(mirrors(address, "gone", "wrong", "good"), tmp_path)
    assert path.read_bytes() == CONTENT
    assert "/good/" in url
    said = capsys.readouterr().err
    assert "gone/corpus.zip: HTTP Error 403" in said
    assert f"expected {DIGEST}" in said


def test_part_that_is_longer_than_the_file_is_dropped(address, tmp_path):
    (tmp_path / "corpus.zip.part").write_bytes(CONTENT + b"more")
    path, _ = download(
        {**mirrors(address, "good"), f"{address}/good/again/corpus.zip": DIGEST}, tmp_path
    )
    assert path.read_bytes() == CONTENT


def test_when_none_works_each_reason_is_given_and_nothing_stays(address, tmp_path):
    nobody = {"http://127.0.0.1:9/corpus.zip": DIGEST}
    with pytest.raises(BadInput) as refusal:
        download({**mirrors(address, "gone", "wrong"), **nobody}, tmp_path)
    sentence = str(refusal.value)
    assert "HTTP Error 403" in sentence
    assert f"expected {DIGEST}" in sentence
    assert "Connection refused" in sentence
    assert "--archive" in sentence
    assert list(tmp_path.iterdir()) == []
