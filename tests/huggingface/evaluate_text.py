"""Fixtures that run ``alibi-fairseq eval`` on a text file."""

from __future__ import annotations

import pytest
from folders import TEXT

from alibi_fairseq.cli import main
from alibi_fairseq.results.files import load_results_file


@pytest.fixture
def text(tmp_path):
    """Return a text file."""
    path = tmp_path / "sample.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def evaluate(text, tmp_path):
    """Return a function that runs ``eval`` on the text file, with its result records."""

    def run(*folders, out="results", texts=(text,), **options) -> list[dict]:
        options = {"lengths": "8,48", "strides": "full,5", **options}
        command = ["eval", *texts, "--path", *folders, "--out", tmp_path / f"{out}.json"]
        for name, value in options.items():
            command.append("--" + name.replace("_", "-"))
            if value is not True:
                command.append(value)
        assert main([str(word) for word in command]) == 0
        return load_results_file(tmp_path / f"{out}.json").records

    return run
