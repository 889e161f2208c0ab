"""Sentences that explain errors, and the exit codes of failed trainings."""

from __future__ import annotations

import sys

import pytest
from commands import PACKAGE, SHORT, as_process
from hydra.errors import MissingConfigException
from torch.multiprocessing import ProcessRaisedException

from alibi_fairseq.errors import UserInputError, explain, is_command, print_error

ERROR_IN_PROCESS = """

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "x.py", line 1
ValueError: inner

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
alibi_fairseq.errors.UserInputError: Wrong: do this.
"""
UNKNOWN_METHOD_IN_PROCESS = ERROR_IN_PROCESS.replace(
    "errors.UserInputError", "positions.registry.UnknownMethodError"
)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("out of memory"), None),
        (ProcessRaisedException("\n\n-- Process 1 …\nTraceback …\nKeyError: 'x'\n", 1, 1), None),
        (ProcessRaisedException(ERROR_IN_PROCESS, 0, 1), "Wrong: do this."),
        (ProcessRaisedException(UNKNOWN_METHOD_IN_PROCESS, 0, 1), "Wrong: do this."),
        (UserInputError("on\n two lines"), "on two lines"),
        (MissingConfigException("no such\nfile", "x"), "no such file"),
        (ModuleNotFoundError("No module named 'alibi_fairseq.x'", name="alibi_fairseq.x"), None),
        (ModuleNotFoundError("No module", name="transformers"), "install.sh huggingface"),
        (ModuleNotFoundError("No module", name="fairseq"), "run ./scripts/install.sh."),
    ],
)
def test_explanation_of_an_error(error, sentence):
    explanation = explain(error)
    if sentence is None:
        assert explanation is None
    else:
        assert sentence in explanation


def test_error_does_not_control_the_terminal(capsys):
    name = "a\x1b]0;title\x07\x9b31m\u202e.txt"
    assert print_error(UserInputError(f"{name} is damaged.")) == 2
    message = capsys.readouterr().err
    assert message.endswith(r"error: a\x1b]0;title\x07\x9b31m\u202e.txt is damaged." + "\n")


@pytest.mark.ci
@pytest.mark.parametrize("spawned", [False, True])
def test_training_errors_print_one_line(spawned, data_bin, tmp_path):
    words = [data_bin, "--user-dir", PACKAGE, *SHORT, "--save-dir", tmp_path / "out"]
    words += ["--position-method", "alibo"]
    command = ["-m", "fairseq_cli.train", *words]
    if spawned:
        # As on a machine with a GPU, where fairseq spawns its processes.
        program = "import sys, torch; torch.cuda.device_count = lambda: 1; "
        program += "sys.argv[0] = 'fairseq-train'; "
        program += "from fairseq_cli.train import cli_main; cli_main()"
        flags = ["--distributed-init-method", "tcp://localhost:29577"]
        flags += ["--distributed-world-size", "1", "--distributed-backend", "gloo"]
        command = ["-c", program, *words, *flags]
    failed = as_process(*command)
    last = failed.stderr.strip().splitlines()[-1]
    assert failed.returncode == 2, failed.stderr[-2000:]
    assert "error: " in last
    assert "Did you mean 'alibi'?" in last
    assert "Traceback" not in failed.stderr
    assert "hydra" not in failed.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("-m alibi_fairseq --help", True),
        ("-um alibi_fairseq --help", True),
        ("-malibi_fairseq", True),
        ("-X importtime -Wm -um fairseq_cli.train", True),
        ("-um pytest -m alibi_fairseq", False),
        ("-X importtime", False),
    ],
)
def test_module_of_command_line_is_recognized(monkeypatch, arguments, expected):
    monkeypatch.setattr(sys, "argv", ["-m"])
    monkeypatch.setattr(sys, "orig_argv", ["python", *arguments.split()])
    assert is_command() == expected
