"""Output and exit codes of ``alibi-fairseq prepare``, and the scripts in data-prep/."""

import errno
import gzip
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from preparations import books, documents_file, tarred, wikitext_files, wikitext_zip
from process_control import files_of

from alibi_fairseq.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return documents_file(tmp_path_factory.mktemp("text") / "text.txt")


def cc100(text, out, *options):
    settings = ["--vocab-size", "350", "--valid-tokens", "300", "--workers", "1", *options]
    return ["prepare", "cc100-roberta", str(text), "--out", str(out), *settings]


def test_prepare_prints_result_and_skips_finished_data(text, tmp_path, capsys):
    assert main(cc100(text, tmp_path / "out", "--shards", "2")) == 0
    first = capsys.readouterr().out
    shards = [str(tmp_path / "out" / "data-bin" / f"shard0{n}") for n in (0, 1)]
    assert first.endswith(f"training and evaluation:\n{':'.join(shards)}\n")
    assert "This is text, not the paper's text" in first
    assert main(cc100(text, tmp_path / "out", "--shards", "2")) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(cc100(text, tmp_path / "out", "--shards", "3")) == 2
    assert "shards: 2 there, 3 now" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("corpus", "arguments", "named"),
    [
        ("wikitext-103", "--archive wikitext-103-v1.zip", "--archive"),  # another text's hash
        ("wikitext-103", "--archive cut.zip --allow-other-text", "cut.zip"),
        ("wikitext-103", "--archive cut.zip --from-folder text", "--from-folder"),
        ("wikitext-103", "--from-folder text", "wiki.train.tokens"),  # too few lines
        ("wikitext-103", "--from-folder latin --allow-other-text", "wiki.valid.tokens"),
        ("bookcorpus", "one", "1 books"),
        ("bookcorpus", "text.txt", "--allow-other-text"),
        ("bookcorpus", "books --held-out 0", "--held-out"),
        ("bookcorpus", "books --held-out 10", "--vocab-size"),
        ("cc100-roberta", "text.txt --valid-tokens 100000", "--valid-tokens"),
        ("cc100-roberta", "text.txt --encoder-json text.txt", "--vocab-bpe"),
        ("cc100-roberta", "text.txt --encoder-json text.txt --vocab-bpe text.txt", "text.txt"),
        ("text", "empty", "empty"),
        ("text", "short.txt", "valid and test"),
        ("text", "equal-lines.txt", "left for test"),
        ("text", "latin", "latin.txt"),
        ("text", "text.txt no-text.zip", "no-text.zip has no member *.txt"),
        ("bookcorpus", "books no-text.tar", "no-text.tar has no member *.txt"),
        ("cc100-roberta", "text.txt text.txt.zst", "compressed (.zst)"),
        ("cc100-roberta", "text.txt packed.txt", "compressed (.gz)"),
        ("text", "linked-folder", "more is a link to a folder"),
        ("text", "broken-link", "gone.txt is a link to a missing file"),
    ],
)
def test_prepare_rejects_bad_input(inputs, tmp_path, monkeypatch, capsys, corpus, arguments, named):
    monkeypatch.chdir(inputs)
    out = tmp_path / "out"
    assert main(["prepare", corpus, *arguments.split(), "--out", str(out), "--workers", "1"]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert named in message
    # Input that is rejected before the whole text has been read leaves no files.
    assert not (out / "data-bin").exists()
    assert (out / "work").exists() == (named == "--vocab-size")


def test_prepare_rejects_unreadable_subfolder(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "texts"
    locked = folder / "locked"
    locked.mkdir(parents=True)
    (folder / "a.txt").write_text("A line.\n")
    scandir = os.scandir

    # The administrator can read folders without permission, so no real folder is used.
    def scandir_without_permission(path):
        if os.fspath(path) == str(locked):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(locked))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_without_permission)
    out = tmp_path / "out"
    assert main(["prepare", "text", str(folder), "--out", str(out), "--workers", "1"]) == 2
    assert f"{locked} cannot be used (Permission denied)" in capsys.readouterr().err


@pytest.fixture(scope="module")
def inputs(text, tmp_path_factory):
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
    shutil.copy(text, folder / "text.txt")
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
    for name in ("linked-folder", "broken-link"):
        (folder / name).mkdir()
        shutil.copy(text, folder / name)
    (folder / "linked-folder" / "more").symlink_to(folder / "books")
    (folder / "broken-link" / "gone.txt").symlink_to(folder / "gone.txt")
    return folder


def test_prepare_rejects_small_disk(text, tmp_path, capsys, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert main(cc100(text, tmp_path / "out")) == 2
    assert "but only 0.0 GB are free there" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_prepare_resumes_after_sigkill(text, tmp_path):
    """Kill the shell script while its workers run, at a moment that depends on the clock."""
    script = ROOT / "data-prep" / "cc100-roberta" / "prepare.sh"
    command = [script, *cc100(text, tmp_path / "out")[2:], "--workers", "2"]
    environment = {**os.environ, "PYTHON": sys.executable}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("out/work/parts/*.json")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "out" / "data-bin").exists()
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    assert main(cc100(text, tmp_path / "whole")) == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")
