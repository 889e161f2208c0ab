"""Errors that end a command: their sentence, exit code and traceback."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from commands import PACKAGE, SHORT, as_process
from hydra.errors import MissingConfigException
from torch.multiprocessing import ProcessRaisedException

from alibi_fairseq.errors import BadInput, explain


class TestCommands:
    """Exit code and output of real commands."""

    @pytest.fixture(
        params=["unknown method", pytest.param("torch.multiprocessing", marks=pytest.mark.slow)]
    )
    def wrong(self, request, data_bin, tmp_path):
        command = ["-m", "fairseq_cli.train", data_bin, "--user-dir", PACKAGE, *SHORT]
        command += ["--save-dir", tmp_path / "out", "--position-method", "alibo"]
        if request.param == "torch.multiprocessing":
            # Stands in for a machine with a GPU, where fairseq starts its processes by spawn.
            program = "import sys, torch; torch.cuda.device_count = lambda: 1; "
            program += "sys.argv[0] = 'fairseq-train'; "
            program += "from fairseq_cli.train import cli_main; cli_main()"
            flags = ["--distributed-init-method", "tcp://localhost:29577"]
            flags += ["--distributed-world-size", "1", "--distributed-backend", "gloo"]
            command = ["-c", program, *command[2:], *flags]
        return as_process(*command)

    def test_exit_code_and_last_words(self, wrong, tmp_path):
        last = wrong.stderr.strip().splitlines()[-1]
        assert wrong.returncode == 2, wrong.stderr[-2000:]
        assert "error: " in last and "Did you mean 'alibi'?" in last
        assert "Traceback" not in wrong.stderr and "hydra" not in wrong.stderr
        assert not (tmp_path / "out").exists()

    def test_a_wrong_flag_is_one_line(self, data_bin, tmp_path):
        command = ["-m", "fairseq_cli.train", data_bin, "--user-dir", PACKAGE, *SHORT]
        failed = as_process(*command, "--save-dir", tmp_path / "out", "--tokens-per-sampel", 8)
        assert failed.returncode == 2
        assert failed.stderr.count("--tokens-per-sampel") == 1 and "usage:" not in failed.stderr

    @pytest.mark.slow
    def test_other_failures_say_where_their_traceback_is(self, data_bin, tmp_path):
        program = "import sys; sys.argv[0] = 'fairseq-train'; from fairseq_cli import train; "
        program += "train.main = lambda cfg: 1 / 0; train.cli_main()"
        flags = ["--user-dir", PACKAGE, *SHORT, "--save-dir", tmp_path / "out"]
        failed = as_process("-c", program, data_bin, *flags, TMPDIR=tmp_path)
        assert failed.returncode == 1
        assert "Traceback" not in failed.stderr
        said, _, place = failed.stderr.strip().splitlines()[-1].partition("; its traceback is in ")
        assert "error: ZeroDivisionError: division by zero" in said
        assert "Traceback" in Path(place).read_text()


FROM_A_CHILD = """

-- Process 0 terminated with the following error:
Traceback (most recent call last):
  File "x.py", line 1
ValueError: inner

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
alibi_fairseq.errors.BadInput: Wrong: do this.
"""


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (RuntimeError("out of memory"), None),
        (KeyError("best_loss"), None),
        (ProcessRaisedException("\n\n-- Process 1 …\nTraceback …\nKeyError: 'x'\n", 1, 1), None),
        (ProcessRaisedException(FROM_A_CHILD, 0, 1), "Wrong: do this."),
        (BadInput("on\n two lines"), "on two lines"),
        (MissingConfigException("no such\nfile", "x"), "no such file"),
        (ModuleNotFoundError("No module named 'alibi_fairseq.x'", name="alibi_fairseq.x"), None),
    ],
)
def test_explain(error, sentence):
    assert explain(error) == sentence


def test_what_is_missing_is_named():
    unsafe = "Weights only load failed. (1) … Unsupported global: GLOBAL posix.system was not …"
    assert "posix.system" in explain(pickle.UnpicklingError(unsafe))
    missing = ModuleNotFoundError("No module named 'transformers'", name="transformers")
    assert "alibi-fairseq[huggingface]" in explain(missing)
