"""Failures, time limits, and the summary of ``scripts/gpu_check.sh``."""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys

import pytest
from commands import ROOT

from benchmarks import gpu_check

TESTS = """
import pytest
def test_good(): pass
def test_bad(): assert 1 == 2, "one is not two"
@pytest.mark.skip(reason="not here")
def test_elsewhere(): pass
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Return a function that runs the check with a program in place of each part.

    It returns the exit code and the summary.
    """

    def run(programs: dict[str, str], *arguments: str, session: float = 60) -> tuple[int, str]:
        def command(part, args, limit):
            if part.name == "tests":
                file = tmp_path / "test_few.py"
                file.write_text(programs["tests"])
                options = [str(file), "-c", "/dev/null", f"--rootdir={tmp_path}"]
                options += ["-q", "-rfE", f"--session-timeout={session}"]
                return [sys.executable, "-m", "pytest", *options]
            return [sys.executable, "-c", programs.get(part.name, "pass")]

        monkeypatch.setattr(gpu_check, "command", command)
        out = tmp_path / "out"
        options = ["--rehearse", *arguments, "--out", str(out), "--parts", *programs]
        monkeypatch.setattr(sys, "argv", ["gpu_check", *options])
        code = gpu_check.main()
        return code, (out / "summary.txt").read_text()

    return run


def test_failed_part_does_not_stop_others(check):
    programs = {"tests": TESTS, "train": "raise ValueError('no kernel')", "attention": "pass"}
    code, summary = check(programs)
    lines = {}
    for line in summary.splitlines()[2:]:
        if not line.startswith("skipped"):
            part = line.split()[1]
            lines[part] = line
    assert code == 1
    assert lines["tests"].startswith("FAILED")
    assert "1 failed, 1 passed, 1 skipped; FAILED " in lines["tests"]
    assert lines["tests"].endswith("test_few.py::test_bad - AssertionError: one is not two")
    assert lines["train"].startswith("FAILED")
    assert lines["train"].endswith("ValueError: no kernel")
    assert lines["attention"].startswith("passed")
    assert len(re.findall("^skipped", summary, re.MULTILINE)) == len(gpu_check.PARTS) - 3


def test_unreached_tests_do_not_hide_passed_ones(check):
    tests = "import time\ndef test_a(): time.sleep(0.3)\ndef test_b(): pass"
    code, summary = check({"tests": tests}, session=0.2)
    assert code == 0
    assert "1 passed; the others were not reached in time" in summary
    assert gpu_check.outcome_of_tests(["1 skipped in 0.01s"], 5) == ("FAILED", "1 skipped")


def test_part_over_time_limit_is_skipped(check, monkeypatch):
    monkeypatch.setattr(gpu_check, "MIN_SECONDS", 0.1)
    short = tuple(dataclasses.replace(part, seconds=1) for part in gpu_check.PARTS)
    monkeypatch.setattr(gpu_check, "PARTS", short)
    slow = {"train": "import time; time.sleep(60)", "attention": "pass"}
    code, summary = check(slow, "--minutes", "0.05")
    assert code == 0
    assert "it did not end in time" in summary
    assert "passed    attention" in summary


def test_interrupted_benchmark_keeps_what_it_measured(check, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check, "MIN_SECONDS", 0.1)
    slow = f"""
import time
open({str(tmp_path / "out" / "train.json")!r}, "w").close()
time.sleep(60)
"""
    code, summary = check({"train": slow}, "--minutes", "0.05")
    assert code == 0
    assert "partial   train" in summary
    assert "did not end in time; train.json has what it measured before" in summary


def test_time_limits_leave_later_parts_what_they_need():
    first, *later = [gpu_check.Part(name, seconds, "") for name, seconds in (("a", 90), ("b", 60))]
    assert gpu_check.time_limit(first, later, 200) == 140
    assert gpu_check.time_limit(first, later, 100) == 90
    assert gpu_check.time_limit(first, later, 50) == 50
    assert gpu_check.time_limit(*later, [], 130) == 130


def test_all_parts_fit_in_nine_minutes():
    assert sum(part.seconds for part in gpu_check.PARTS) <= 9 * 60


def test_rehearsal_without_gpu_requires_option(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--out", str(tmp_path)])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        gpu_check.main()


def test_option_selects_tests_by_name(tmp_path):
    args = argparse.Namespace(rehearse=True, out=tmp_path, tests="decoding or loss")
    words = gpu_check.command(gpu_check.PARTS[0], args, limit=60)
    assert words[-2:] == ["-k", "decoding or loss"]


def test_script_requires_pytest(tmp_path):
    python = tmp_path / "python"  # has all packages but pytest
    python.write_text('#!/bin/sh\ncase "$*" in *pytest*) exit 1 ;; esac\nexit 0\n')
    python.chmod(0o755)
    command = ["env", f"PYTHON={python}", "bash", str(ROOT / "scripts" / "gpu_check.sh")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "lacks pytest" in done.stderr
    assert "wheels-py" not in done.stderr
