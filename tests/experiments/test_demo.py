"""The demonstration as a comparison; ``.ci/run`` runs the whole."""

from __future__ import annotations

import pytest

from alibi_fairseq.cli import main
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments.comparison import PAPER_METHODS
from alibi_fairseq.experiments.demonstration import comparison_of, python_documentation


@pytest.mark.slow
def test_embedded_text_is_the_same_every_time():
    text = python_documentation()
    assert text == python_documentation()
    assert len(text) > 1_000_000
    lines = text.splitlines()
    assert all(line and line == " ".join(line.split()) for line in lines)


def test_methods_by_name(tmp_path):
    def methods(names):
        return comparison_of(None, names, quick=False, out=tmp_path).methods

    assert methods(["alibi", "sinusoidal", "alibi"]) == ("alibi", "sinusoidal")
    assert methods(["all"]) == PAPER_METHODS
    for names in (["alibi", "sinusodial"], []):
        with pytest.raises(BadInput, match="methods"):
            methods(names)


def test_own_text_has_a_folder_of_its_own(tmp_path):
    (tmp_path / "book.txt").touch()
    found = comparison_of(tmp_path / "book.txt", ["alibi"], quick=False, out=tmp_path)
    assert found.corpora[0].name == "book"


def test_a_text_that_is_not_there_is_one_sentence(tmp_path, capsys):
    words = ["--text", str(tmp_path / "none.txt"), "--out", str(tmp_path / "work")]
    assert main(["demo", *words]) == 2
    assert "--text takes a text file" in capsys.readouterr().err
    assert not (tmp_path / "work").exists()
