"""The benchmark of the data preparation."""

from __future__ import annotations

import sys

import pytest
from preparations import books

from benchmarks import data_prep

HOLD = "held = bytearray(b'x') * 100_000_000; time.sleep(2)"
FAMILY = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; {HOLD}"])
{HOLD}
child.wait()
"""


def test_text_is_repeated_in_short_documents(tmp_path):
    folder = books(tmp_path / "books")
    data_prep.write_text([folder], tmp_path / "text.txt", 1_000_000)
    text = (tmp_path / "text.txt").read_text(encoding="utf-8")
    assert 1_000_000 <= len(text.encode()) < 6_000_000
    documents = text.strip("\n").split("\n\n")
    assert max(map(len, documents)) < data_prep.DOCUMENT + 400
    lines = {line for path in folder.iterdir() for line in path.read_text().splitlines() if line}
    found = {line for document in documents for line in document.split("\n")}
    assert found - {"“Quoted” – text…"} == lines - {"“Quoted”  – text…"}


def test_memory_and_processor_time_are_of_all_processes(tmp_path):
    watch = data_prep.Watch([sys.executable, "-c", FAMILY], tmp_path / "out", tmp_path / "log")
    watch.until_done()
    assert 200e6 < watch.peak["reading"] < 300e6
    assert watch.seconds["reading"] > 2
    assert 0.02 < watch.processor["reading"] < watch.seconds["reading"]


def test_a_command_that_fails_is_told(tmp_path):
    watch = data_prep.Watch([sys.executable, "-c", "1 / 0"], tmp_path / "out", tmp_path / "log")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        watch.until_done()
