"""Output and exit codes of ``alibi-fairseq prepare``, and the scripts in data-prep/."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from preparations import documents_file
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
