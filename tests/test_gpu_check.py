"""``scripts/gpu_check.sh``: what fails does not stop the rest, and the summary says what was proven."""

from __future__ import annotations

import sys
from zipfile import ZipFile

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.results.schema import load_document
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
        def command(part, args, report, limit):
            if part.name == "tests":
                (tmp_path / "test_few.py").write_text(programs["tests"])
                few = [str(tmp_path / "test_few.py"), "-c", "/dev/null", f"--rootdir={tmp_path}"]
                few += [f"--junitxml={report}", f"--session-timeout={session}"]
                return [sys.executable, "-m", "pytest", *few]
            return [sys.executable, "-c", programs.get(part.name, "pass")]

        monkeypatch.setattr(gpu_check, "command", command)
        out = ("--out", str(tmp_path / "out"), "--parts", *programs)
        monkeypatch.setattr(sys, "argv", ["gpu_check", "--rehearse", *arguments, *out])
        return gpu_check.main(), (tmp_path / "out" / "summary.txt").read_text()

    return run


def test_a_failure_stops_nothing_and_is_named(check, tmp_path):
    failing = {"tests": TESTS, "train": "raise ValueError('no kernel')", "attention": "pass"}
    code, summary = check(failing)
    lines = {line.split()[1]: line for line in summary.splitlines()[2:] if "left out" not in line}
    assert code == 1
    assert lines["tests"].startswith("FAILED")
    assert (
        "1 failed, 1 passed, 1 do not apply here; test_bad: AssertionError: one is not two"
        in (lines["tests"])
    )
    assert lines["train"].startswith("FAILED") and lines["train"].endswith("ValueError: no kernel")
    assert lines["attention"].startswith("proven")
    assert summary.count("left out") == len(gpu_check.PARTS) - 3
    cells = load_document(tmp_path / "out" / "tests.json")["cells"]
    assert [cell["outcome"] for cell in cells] == ["passed", "failed", "skipped"]


def test_no_tests_at_all_prove_nothing(check):
    code, summary = check({"tests": "import pytest\npytest.skip(allow_module_level=True)"})
    assert code == 1 and "FAILED    tests" in summary


def test_tests_that_are_not_reached_in_time_do_not_hide_those_that_passed(check, tmp_path):
    slow = "import time\ndef test_first(): time.sleep(0.3)\ndef test_second(): pass"
    code, summary = check({"tests": slow}, session=0.2)
    assert code == 0
    assert "1 passed, 0 do not apply here; the others were not reached in time" in summary


def test_what_takes_too_long_is_left_out(check, monkeypatch):
    monkeypatch.setattr(gpu_check, "LEAST_SECONDS", 0.1)
    slow = {"train": "import time; time.sleep(60)", "attention": "pass"}
    code, summary = check(slow, "--minutes", "0.1")
    assert code == 0
    assert "it did not end in time" in summary and "proven    attention" in summary


def test_without_a_gpu_it_must_be_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--out", str(tmp_path)])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadInput, match="--rehearse"):
        gpu_check.main()


def test_every_part_is_a_benchmark_that_takes_its_options(tmp_path):
    """The commands name modules that exist, and at most eight files come back."""
    parts = [part for part in gpu_check.PARTS if part.name != "study"]  # a call of its own
    assert len(parts) + 1 <= 8
    for part in parts:
        if part.name != "tests":
            __import__(f"benchmarks.{part.name}")


FINISHED = """
import pathlib, time
for name in ("one", "two"):
    folder = pathlib.Path({folder!r}) / "results" / "cells" / name
    folder.mkdir(parents=True)
    (folder / "training.json").write_text("{{}}")
    if name == "one":
        (folder / "cell.json").write_text("{{}}")
time.sleep(60)
"""


def test_models_of_the_study_that_were_finished_come_back_in_one_file(check, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_check, "LEAST_SECONDS", 0.1)
    slow = {"study": FINISHED.format(folder=str(tmp_path / "out-study"))}
    code, summary = check(slow, "--minutes", "0.05", "--corpus", "wikipedia=text.zip")
    assert code == 0
    assert "1 models trained, study.zip; the others were not reached in time" in summary
    names = ZipFile(tmp_path / "out" / "study.zip").namelist()
    assert names == ["cells/one/cell.json", "cells/one/training.json"]
    with pytest.raises(BadInput, match="--corpus"):
        check({"study": "pass"})
