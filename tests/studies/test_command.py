"""Errors of ``python -m studies``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from studies.__main__ import main

ROOT = Path(__file__).parents[2]

# Runs the command in an environment without statsmodels.
WITHOUT_STATSMODELS = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "statsmodels":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

sys.meta_path.insert(0, Missing())
runpy.run_module("studies", run_name="__main__")
"""


@pytest.mark.slow
def test_missing_package_names_install_command():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_STATSMODELS], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "No module named 'statsmodels'" in line
    assert "run ./scripts/install.sh study" in line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--dry-run"], "--dry-run requires a corpus"),
        (["--models", "wikipedia-alibi-*"], "--models requires a corpus"),
        (["--parallel", "1"], "--parallel requires a corpus"),
        (["--work-dir", "work"], "--work-dir requires a corpus"),
        (
            ["--corpus", "wikipedia=text", "--dry-run", "--readme", "README.md"],
            "--readme cannot be combined with --corpus",
        ),
        (["--corpus", "wikipedia=text", "--models", "alibi"], "--models alibi matches no model"),
    ],
)
def test_options_without_effect_are_rejected(words, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text").mkdir()
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    assert named in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["text"]


def test_page_without_arguments_is_written_to_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    page = Path("runs/studies/results/README.md")
    assert capsys.readouterr().out == f"{page}\n"
    assert "**primary models**" in page.read_text(encoding="utf-8")
    assert {path.parts[0] for path in Path().rglob("*")} == {"runs"}
