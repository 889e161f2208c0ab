"""Errors of ``python -m studies``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from studies.__main__ import main, page_module

ROOT = Path(__file__).parents[2]

# Runs the command in an environment without some packages.
WITHOUT_PACKAGES = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {names}:
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

sys.meta_path.insert(0, Missing())
runpy.run_module("studies", run_name="__main__")
"""


def run_without(names: tuple[str, ...], *words: str) -> subprocess.CompletedProcess:
    program = WITHOUT_PACKAGES.format(names=names)
    return subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.slow
def test_missing_package_of_the_page_names_install_command(tmp_path):
    results = tmp_path / "study"
    shutil.copytree(ROOT / "results" / "small_models", results)
    done = run_without(("statsmodels",), "--results", str(results))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "No module named 'statsmodels'" in line
    assert "run ./scripts/install.sh study" in line


@pytest.mark.slow
def test_training_needs_no_package_of_the_page():
    """A GPU node may lack them."""
    done = run_without(("matplotlib", "statsmodels"), "--corpus", "wikipedia=text", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "alibi-128" in done.stdout


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
        (["--corpus", "wikipedia=text", "--methods", "kerple"], "which --methods needs"),
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


def test_page_is_that_of_the_folder_or_of_the_six_tests(tmp_path):
    shutil.copy(ROOT / "studies/title/12M.yaml", tmp_path)
    (tmp_path / "page.py").write_text("raise AssertionError\n")
    modules = {
        ROOT / "studies/title/12M.yaml": "studies.title.page",
        ROOT / "studies/small_models/secondary.yaml": "studies.small_models.page",
        ROOT / "studies/gpu/hour.yaml": "studies.page",
        tmp_path / "12M.yaml": "studies.page",  # code next to it is not run
    }
    assert {path: page_module(path) for path in modules} == modules


def test_page_without_arguments_is_written_to_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([]) == 0
    page = Path("runs/studies/results/README.md")
    assert capsys.readouterr().out == f"{page}\n"
    assert "**primary models**" in page.read_text(encoding="utf-8")
    assert {path.parts[0] for path in Path().rglob("*")} == {"runs"}
