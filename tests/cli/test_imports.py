"""Libraries that a command imports: help must not wait for PyTorch or fairseq."""

from __future__ import annotations

import sys

import pytest
from commands import as_process

from alibi_fairseq.cli import COMMANDS

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


def test_training_imports_neither_scipy_nor_sklearn():
    """fairseq imports them for a criterion and a task that no language model uses."""
    assert {"scipy", "sklearn", "pandas"}.isdisjoint(imported_by("train", "--help"))


def test_models_do_not_import_the_compiler():
    script = "import sys, alibi_fairseq.models; print('torch._dynamo' in sys.modules)"
    done = as_process("-c", script)
    assert done.stdout.strip() == "False", done.stderr


def test_deferred_function_calls_the_library():
    from fairseq.criterions import sentence_prediction

    assert sentence_prediction.f1_score([0, 1, 1], [0, 1, 0]) == pytest.approx(2 / 3)
    assert "sklearn.metrics" in sys.modules
