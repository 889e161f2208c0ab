"""The command itself: what it prints, its exit codes, and the scripts in data-prep/."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killing import files_of
from preparations import documents_file, wikitext_zip

from alibi_fairseq.cli import main

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return documents_file(tmp_path_factory.mktemp("text") / "text.txt")


def cc100(text, out, *more):
    settings = ["--vocab-size", "350", "--valid-tokens", "300", "--workers", "1", *more]
    return ["prepare", "cc100-roberta", str(text), "--out", str(out), *settings]


def test_result_is_told_and_a_second_run_says_so(text, tmp_path, capsys):
    assert main(cc100(text, tmp_path / "out", "--shards", "2")) == 0
    first = capsys.readouterr().out
    shards = [str(tmp_path / "out" / "data-bin" / f"shard0{n}") for n in (0, 1)]
    assert first.endswith(f"give fairseq:\n{':'.join(shards)}\n")
    assert "This is text, not the paper's text" in first
    assert main(cc100(text, tmp_path / "out", "--shards", "2")) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(cc100(text, tmp_path / "out", "--shards", "3")) == 2
    assert "shards: 2 there, 3 now" in capsys.readouterr().err


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, capsys):
    archive = wikitext_zip(tmp_path / "wikitext-103-v1.zip", tmp_path / "text")
    out = tmp_path / "out"
    assert main(["prepare", "wikitext-103", "--archive", str(archive), "--out", str(out)]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("alibi-fairseq: error: --archive ")
    assert "expected 242ba0f2" in said
    assert not out.exists()


def test_small_disk_stops_before_the_work(text, tmp_path, capsys, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert main(cc100(text, tmp_path / "out")) == 2
    assert "are free there; free some space" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_ctrl_c_says_how_to_go_on(text, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("alibi_fairseq.dataprep.cc100_roberta.write_runs", interrupt)
    assert main(cc100(text, tmp_path / "out")) == 130
    assert "goes on where this one stopped" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(cc100(text, tmp_path / "out")) == 0


@pytest.mark.slow
def test_script_killed_by_sigkill_goes_on(text, tmp_path):
    """With worker processes, from the shell script, at a moment that the clock decides."""
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
