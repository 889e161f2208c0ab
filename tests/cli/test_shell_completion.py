"""Completion of commands and options in bash."""

from __future__ import annotations

import subprocess

import pytest

from alibi_fairseq import cli
from alibi_fairseq.cli import COMMANDS, FAIRSEQ_COMMANDS

pytest.importorskip("shtab")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("completion") / "alibi-fairseq"
    with pytest.MonkeyPatch.context() as patch, path.open("w") as stream:
        patch.setattr("sys.stdout", stream)
        assert cli.main(["completion", "bash"]) == 0
    return path


def complete(script, *words: str) -> set[str]:
    """Return what bash offers for the last word of a command line."""
    code = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        'function=$(complete -p alibi-fairseq | sed "s/.*-F \\([^ ]*\\).*/\\1/")\n'
        '"$function" alibi-fairseq "${COMP_WORDS[-1]}" ""; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command = ["bash", "--norc", "-c", code, "bash", str(script), "alibi-fairseq", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_command_is_completed(script):
    assert complete(script, "comp") == {"compare", "completion"}
    assert {*COMMANDS, *FAIRSEQ_COMMANDS} <= complete(script, "")


def test_option_is_completed(script):
    assert complete(script, "compare", "--tok") == {"--tokenizer", "--tokens-per-update"}
    assert complete(script, "eval", "data", "--strid") == {"--strides"}
    assert "--held-out" in complete(script, "prepare", "text", "--h")


def test_choice_is_completed(script):
    assert complete(script, "reproduce", "table5", "--scale", "m") == {"mini"}


def test_unknown_shell_is_rejected(capsys):
    assert cli.main(["completion", "dash"]) == 2
    assert "Choose from bash, zsh" in capsys.readouterr().err
