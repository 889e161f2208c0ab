"""The demonstration as a comparison; ``.ci/run`` runs the whole."""

from __future__ import annotations

import subprocess
import sys

import pytest

from alibi_fairseq.compare.description import PAPER_METHODS
from alibi_fairseq.demo import __main__ as demo
from alibi_fairseq.demo.corpus import python_documentation
from alibi_fairseq.errors import BadInput


@pytest.mark.slow
def test_embedded_text_is_the_same_every_time():
    text = python_documentation()
    assert text == python_documentation()
    assert len(text) > 1_000_000
    lines = text.splitlines()
    assert all(line and line == " ".join(line.split()) for line in lines)


def test_methods_by_name():
    def methods(names):
        return demo.comparison_of(demo.parse(["--methods", names])).methods

    assert methods("alibi, sinusoidal,alibi") == ("alibi", "sinusoidal")
    assert methods("all") == PAPER_METHODS
    for names in ("alibi,sinusodial", "", ","):
        with pytest.raises(BadInput, match="methods"):
            methods(names)


def test_everything_that_is_made_goes_to_runs():
    for flags in ([], ["--quick"], ["--methods", "all"]):
        options = demo.parse(flags)
        assert str(options.out).startswith("runs/demo") and options.results is None


def test_own_text_has_a_folder_of_its_own(tmp_path):
    (tmp_path / "book.txt").touch()
    options = demo.parse(["--text", str(tmp_path / "book.txt")])
    assert demo.comparison_of(options).corpora[0].name == "book"


def test_bad_input_is_one_line_and_exit_code_2(tmp_path):
    command = [sys.executable, "-m", "alibi_fairseq.demo", "--text", str(tmp_path / "none.txt")]
    command += ["--out", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("demo.sh: error: ")
    assert not (tmp_path / "work").exists()
