"""scripts/test_environments.py records what pytest reported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from commands import ROOT

from alibi_fairseq.results.schema import load_document

SCRIPT = ROOT / "scripts" / "test_environments.py"
REPORT = """<testsuites><testsuite>
<testcase classname="a" name="one"/>
<testcase classname="a" name="two"><failure message="no"/></testcase>
<testcase classname="b" name="three"><skipped message="no GPU"/></testcase>
<testcase classname="b" name="four"><error message="no"/></testcase>
</testsuite></testsuites>"""


def run(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(SCRIPT), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def cell(tmp_path):
    (tmp_path / "tests.xml").write_text(REPORT)
    done = run("--record", "3.10", tmp_path / "tests.xml", "12.5", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    made = load_document(tmp_path / "python-3.10.json")
    assert made["provenance"]["seconds"] == 12.5
    (cell,) = made["cells"]
    return cell


def test_failures_and_errors_are_named(cell):
    assert (cell["passed"], cell["skipped"], cell["failed"]) == (1, 1, 2)
    assert cell["failures"] == "a::two\nb::four"


def test_a_missing_interpreter_is_named(tmp_path):
    done = run("3.99", "--out", tmp_path)
    assert done.returncode == 2
    assert "python3.99 is not on the PATH" in done.stderr
