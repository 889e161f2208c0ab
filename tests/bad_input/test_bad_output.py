"""Output that cannot be written: a full disk, closed streams, and impossible paths."""

from __future__ import annotations

import os
import sys
import tempfile

import pytest
from commands import SHORT, as_process
from results_documents import document, evaluation_record

from alibi_fairseq.errors import print_error
from alibi_fairseq.results.file import save


def test_impossible_output_path_is_rejected(tmp_path, refuse):
    save(document(evaluation_record()), tmp_path / "results.json")
    file = tmp_path / "results.json"
    for out in (file, file / "below", tmp_path / ("x" * 300)):
        assert str(out)[:200] in refuse("report", tmp_path / "results.json", "--out", out)


@pytest.mark.parametrize(
    "command",
    [
        "compare DATA",
        "compare DATA --dry-run",
        "reproduce table8 --scale smoke --corpus bookcorpus=DATA --cpu 1",
        "prepare text DATA",
    ],
)
def test_colon_in_path_of_data_is_rejected(data_bin, tmp_path, refuse, command):
    out = tmp_path / "2026-01-05T12:00"
    words = command.replace("DATA", str(data_bin)).split()
    assert f"--out {out}" in refuse(*words, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize("output", ["a closed pipe", "/dev/full"])
def test_unwritable_stdout_is_reported(output, monkeypatch, refuse):
    if output == "/dev/full":
        stream = os.fdopen(os.open(output, os.O_WRONLY), "w")
    else:
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w")
    with stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert "The output" in refuse("models")


@pytest.mark.slow
def test_full_stdout_does_not_end_training(data_bin, tmp_path):
    """Log lines that cannot be written are dropped, without a traceback for each."""
    words = ["alibi_fairseq", "train", data_bin, *SHORT, "--save-dir", tmp_path]
    program = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); "
    program += "os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
    done = as_process("-c", program, *words)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert "Logging error" not in done.stderr
    assert (tmp_path / "checkpoint_last.pt").is_file()


def test_full_stderr_moves_error_to_stdout(data_bin):
    program = "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 2); "
    program += "os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
    done = as_process("-c", program, "alibi_fairseq", "models", "--nosuch")
    assert done.returncode == 2
    assert "error: " in done.stdout.splitlines()[-1]
    assert "--nosuch" in done.stdout


@pytest.mark.ci
@pytest.mark.parametrize("number", [0, 1, 2])
def test_closed_standard_stream(number):
    program = f"import os, sys; os.close({number}); os.execv(sys.executable, "
    program += "[sys.executable, '-m', 'alibi_fairseq', 'models'])"
    done = as_process("-c", program)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr


def test_characters_that_stdout_lacks_are_replaced():
    done = as_process("-m", "alibi_fairseq", "compare", "--help", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "--methods A,B,?" in done.stdout


def test_traceback_is_printed_without_temporary_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert print_error(RuntimeError("unexpected")) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("RuntimeError: unexpected\n")  # the traceback of no frames
    assert printed.endswith("error: RuntimeError: unexpected\n")
