"""Libraries that a command imports: help must not wait for PyTorch or fairseq."""

from __future__ import annotations

import sys

import pytest
from commands import as_process
from fakes import Commands

from alibi_fairseq.cli import COMMANDS, main
from alibi_fairseq.runs import child_process

#: Libraries that take a second or more to import.
HEAVY = ("torch", "fairseq", "transformers", "matplotlib", "scipy", "sklearn", "pandas")
#: Prints the imported libraries of HEAVY after a command.
SCRIPT = """
import sys
from alibi_fairseq import cli
try:
    code = cli.main(sys.argv[2:])
except SystemExit as end:
    code = end.code
print("imported:", *[name for name in sys.argv[1].split(",") if name in sys.modules])
sys.exit(code)
"""


def imported_by(*arguments, cwd=None):
    """Return the heavy libraries that a successful command imports."""
    done = as_process("-c", SCRIPT, ",".join(HEAVY), *arguments, **({"cwd": cwd} if cwd else {}))
    assert done.returncode == 0, done.stderr
    return done.stdout.rpartition("imported:")[2].split()


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids="-".join)
def test_help_imports_no_heavy_library(command):
    assert imported_by(*command, "--help") == []


def test_help_of_corpus_imports_no_heavy_library():
    assert imported_by("prepare", "text", "--help") == []


@pytest.mark.ci
def test_training_imports_neither_scipy_nor_sklearn():
    """fairseq imports them for a criterion and a task that no language model uses."""
    assert {"scipy", "sklearn", "pandas"}.isdisjoint(imported_by("train", "--help"))


@pytest.mark.ci
def test_complete_comparison_imports_no_heavy_library(data_bin, tmp_path, monkeypatch):
    """It is not checked, trained, evaluated, or drawn again."""
    monkeypatch.setattr(child_process, "execute_command", Commands())
    words = ["compare", data_bin, "--methods", "alibi,none", "--updates", "4", "--lengths", "16"]
    words = [*map(str, words), "--train-lengths", "16", "--tokens-per-update", "128"]
    words += ["--parallel", "1", "--out", str(tmp_path)]
    assert main(words) == 0
    (tmp_path / "figure.png").write_text("deleted by the next report")
    figure = (tmp_path / "figure.svg").read_text()
    assert main(words) == 0
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figure.svg").read_text() == figure
    assert imported_by(*words) == []


@pytest.mark.ci
def test_finished_evaluation_imports_no_heavy_library(data_bin, checkpoint, tmp_path):
    words = ["eval", data_bin, "--path", checkpoint, "--lengths", "8", "--out", tmp_path / "e.json"]
    words = [*map(str, words), "--by-position", "--effective-context"]
    assert main(words) == 0
    assert imported_by(*words) == []


@pytest.mark.ci
def test_finished_evaluation_of_probe_imports_no_heavy_library(probe, tmp_path):
    data, checkpoint = probe
    words = ["eval", data, "--path", checkpoint, "--lengths", "32", "--out", tmp_path / "e.json"]
    words = list(map(str, words))
    assert main(words) == 0
    assert imported_by(*words) == []


@pytest.mark.ci
def test_plugin_is_imported_without_fairseq(tmp_path):
    """Its options are added to the models when fairseq is imported."""
    folder = tmp_path / "light_plugin"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from dataclasses import dataclass\n"
        "from alibi_fairseq.positions import PositionMethod, option, register_position_method\n"
        "@dataclass(frozen=True)\n"
        "class Options:\n"
        "    lightness: float = option('a number', 0.5)\n"
        "class Light(PositionMethod):\n"
        "    Options = Options\n"
        "register_position_method('light', Light)\n"
    )
    script = (
        "import sys; from alibi_fairseq.cli.plugin import import_plugin\n"
        "import_plugin(sys.argv[1]); print('fairseq' in sys.modules)\n"
        "from alibi_fairseq.cli import main; sys.exit(main(sys.argv[2:]))"
    )
    help_text = ("train", "--help", "--user-dir", folder)
    done = as_process("-c", script, folder, *help_text)
    assert done.stdout.startswith("False\n"), done.stderr
    assert "--lightness" in done.stdout
    code = (folder / "__init__.py").read_text()
    (folder / "__init__.py").write_text(code.replace("lightness", "seed"))
    done = as_process("-c", script, folder, *help_text)
    assert "'seed' of the position method 'light' has the name of another option" in done.stderr


@pytest.mark.ci
@pytest.mark.parametrize(("program", "frozen"), [("alibi-fairseq", True), ("notebook", False)])
def test_garbage_collection_continues_after_imports(program, frozen):
    """Only a command leaves the imported modules out of it, not a program of somebody else."""
    script = (
        "import gc, sys; sys.argv[0] = sys.argv[1]; import alibi_fairseq.models; "
        "print(gc.isenabled(), gc.get_freeze_count() > 10_000)"
    )
    done = as_process("-c", script, program)
    assert done.stdout == f"True {frozen}\n", done.stderr


@pytest.mark.ci
def test_models_do_not_import_the_compiler():
    script = "import sys, alibi_fairseq.models; print('torch._dynamo' in sys.modules)"
    done = as_process("-c", script)
    assert done.stdout.strip() == "False", done.stderr


def test_deferred_function_calls_the_library():
    from fairseq.criterions import sentence_prediction

    assert sentence_prediction.f1_score([0, 1, 1], [0, 1, 0]) == pytest.approx(2 / 3)
    assert "sklearn.metrics" in sys.modules
