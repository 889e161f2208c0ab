"""``scripts/gpu_check.sh``: what fails does not stop the rest, and the summary says what was proven."""

from __future__ import annotations

import argparse
import sys

import pytest

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
    """Run the check with a program in place of each part; returns exit code and summary."""

    def run(programs: dict[str, str], *arguments: str, session: float = 60) -> tuple[int, str]:
        def command(part, args, limit):
            if part.name == "tests":
                (tmp_path / "test_few.py").write_text(programs["tests"])
                few = [str(tmp_path / "test_few.py"), "-c", "/dev/null", f"--rootdir={tmp_path}"]
                few += ["-q", "-rfE", f"--session-timeout={session}"]
                return [sys.executable, "-m", "pytest", *few]
            return [sys.executable, "-c", programs.get(part.name, "pass")]

        monkeypatch.setattr(gpu_check, "command", command)
        out = ("--out", str(tmp_path / "out"), "--parts", *programs)
        monkeypatch.setattr(sys, "argv", ["gpu_check", "--rehearse", *arguments, *out])
        return gpu_check.main(), (tmp_path / "out" / "summary.txt").read_text()

    return run


def test_a_failure_stops_nothing_and_is_named(check):
    failing = {"tests": TESTS, "train": "raise ValueError('no kernel')", "attention": "pass"}
    code, summary = check(failing)
    lines = {line.split()[1]: line for line in summary.splitlines()[2:] if "left out" not in line}
    assert code == 1
    assert lines["tests"].startswith("FAILED")
    assert "1 failed, 1 passed, 1 skipped; FAILED " in lines["tests"]
    assert lines["tests"].endswith("test_few.py::test_bad - AssertionError: one is not two")
    assert lines["train"].startswith("FAILED") and lines["train"].endswith("ValueError: no kernel")
    assert lines["attention"].startswith("proven")
    assert summary.count("left out") == len(gpu_check.PARTS) - 3


def test_tests_that_are_not_reached_in_time_do_not_hide_what_passed(check):
    tests = "import time\ndef test_a(): time.sleep(0.3)\ndef test_b(): pass"
    found, summary = check({"tests": tests}, session=0.2)
    assert found == 0 and "1 passed; the others were not reached in time" in summary
    assert gpu_check.outcome_of_tests(["1 skipped in 0.01s"], 5) == ("FAILED", "1 skipped")


def test_what_takes_too_long_is_left_out(check, monkeypatch):
    monkeypatch.setattr(gpu_check, "LEAST_SECONDS", 0.1)
    slow = {"train": "import time; time.sleep(60)", "attention": "pass"}
    code, summary = check(slow, "--minutes", "0.05")
    assert code == 0
    assert "it did not end in time" in summary and "proven    attention" in summary


def test_without_a_gpu_it_must_be_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--out", str(tmp_path)])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SystemExit, match="2"):
        gpu_check.main()


def test_tests_are_selected_by_name(tmp_path):
    args = argparse.Namespace(rehearse=True, out=tmp_path, tests="decoding or loss")
    words = gpu_check.command(gpu_check.PARTS[0], args, limit=60)
    assert words[-2:] == ["-k", "decoding or loss"]
