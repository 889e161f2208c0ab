"""Fixtures that run ``alibi-fairseq eval`` on a text file."""

from __future__ import annotations

import pytest
from folders import TEXT

from alibi_fairseq.cli import main
from alibi_fairseq.results.file import load
from alibi_fairseq.results.result import Result


@pytest.fixture
def text(tmp_path):
    """Return a text file."""
    path = tmp_path / "sample.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def evaluate(text, tmp_path):
    """Return a function that runs ``eval`` on the text file, and returns the results."""

    def run(*folders, out="results", texts=(text,), **options) -> list[Result]:
        options = {"lengths": "8,48", "strides": "full,5", **options}
        command = ["eval", *texts, "--path", *folders, "--out", tmp_path / f"{out}.json"]
        for name, value in options.items():
            command.append("--" + name.replace("_", "-"))
            if value is not True:
                command.append(value)
        assert main([str(word) for word in command]) == 0
        return list(load(tmp_path / f"{out}.json").results)

    return run
