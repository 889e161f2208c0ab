"""Libraries that a command imports: help must not wait for PyTorch or fairseq."""

from __future__ import annotations

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


@pytest.mark.ci
def test_options_of_a_plugin_are_options_of_the_models(tmp_path):
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
    help_text = ("train", "--help", "--user-dir", folder)
    done = as_process("-m", "alibi_fairseq", *help_text)
    assert "--lightness" in done.stdout
    code = (folder / "__init__.py").read_text()
    (folder / "__init__.py").write_text(code.replace("lightness", "seed"))
    done = as_process("-m", "alibi_fairseq", *help_text)
    assert "'seed' of the position method 'light' has the name of another option" in done.stderr
