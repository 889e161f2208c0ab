"""Mistakes of the user: one sentence, exit code 2, nothing half-written."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from commands import PACKAGE, SHORT, as_process, in_process
from fairseq.data import Dictionary
from hydra.errors import MissingConfigException
from torch.multiprocessing import ProcessRaisedException

from alibi_fairseq.errors import BadInput, explain


def sentence_of(program, *arguments):
    """What a failing command would say; None if it would show a traceback."""
    with pytest.raises(Exception) as raised:
        in_process(program, *arguments)
    return explain(raised.value)


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
        assert "error: There is no position method 'alibo'. Did you mean 'alibi'?" in last
        assert "Traceback" not in wrong.stderr and "hydra" not in wrong.stderr
        assert not (tmp_path / "out").exists()

    def test_a_wrong_flag_is_one_line(self, data_bin, tmp_path):
        command = ["-m", "fairseq_cli.train", data_bin, "--user-dir", PACKAGE, *SHORT]
        failed = as_process(*command, "--save-dir", tmp_path / "out", "--tokens-per-sampel", 8)
        assert failed.returncode == 2
        assert failed.stderr.count("error: unrecognized arguments: --tokens-per-sampel 8") == 1
        assert "usage:" not in failed.stderr

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


class TestSentences:
    def test_heads_that_do_not_divide_the_width(self, data_bin, tmp_path):
        flags = ["--decoder-attention-heads", 5, "--save-dir", tmp_path]
        assert "5 attention heads do not divide" in sentence_of("train", data_bin, *SHORT, *flags)

    def test_a_dictionary_that_is_too_small_for_an_adaptive_softmax(self, data_bin, tmp_path):
        flags = ["--adaptive-input", "--adaptive-input-cutoff", "1000", "--save-dir", tmp_path]
        said = sentence_of("train", data_bin, *SHORT, *flags)
        assert said.startswith("The dictionary has fewer entries than the adaptive input")

    def test_missing_data(self, tmp_path):
        flags = [*SHORT, "--save-dir", tmp_path / "out"]
        assert "no data folder" in sentence_of("train", tmp_path / "nowhere", *flags)
        missing = sentence_of("train", tmp_path, *flags)
        assert missing.startswith(f"There is no dictionary {tmp_path}/dict.txt; ")

    def test_missing_split(self, data_bin, checkpoint):
        flags = ["--path", checkpoint, "--gen-subset", "dev", "--cpu", "--tokens-per-sample", 16]
        missing = sentence_of("eval_lm", data_bin, *flags)
        assert missing.startswith("There is no split 'dev' in the data (no ")

    def test_missing_checkpoint(self, data_bin):
        missing = sentence_of("eval_lm", data_bin, "--path", "none.pt", "--cpu")
        assert missing == "There is no checkpoint none.pt; check --path."

    def test_damaged_checkpoint(self, data_bin, checkpoint, tmp_path):
        for size in (0, 5, 5000):
            damaged = tmp_path / f"{size}.pt"
            damaged.write_bytes(checkpoint.read_bytes()[:size])
            said = sentence_of("eval_lm", data_bin, "--path", damaged, "--cpu")
            assert said.startswith(f"{damaged} cannot be read as a checkpoint")

    def test_something_else_that_torch_has_saved(self, data_bin, tmp_path):
        torch.save({"weights": torch.ones(1)}, tmp_path / "other.pt")
        said = sentence_of("eval_lm", data_bin, "--path", tmp_path / "other.pt", "--cpu")
        assert "cannot be read as a checkpoint" in said

    def test_resuming_another_architecture(self, data_bin, checkpoint, tmp_path):
        for flag, value, detail in (
            ("--decoder-embed-dim", 64, "32) there and ("),
            ("--decoder-layers", 2, "exists only here"),
        ):
            flags = [*SHORT, flag, value, "--save-dir", tmp_path, "--restore-file", checkpoint]
            said = sentence_of("train", data_bin, *flags)
            assert said.startswith(f"The checkpoint {checkpoint} holds a model of another archi")
            assert detail in said

    def test_a_dictionary_of_another_size(self, data_bin, checkpoint, tmp_path):
        dictionary = Dictionary.load(str(data_bin / "dict.txt"))
        for word in ("more", "words"):
            dictionary.add_symbol(word)
        dictionary.save(str(tmp_path / "dict.txt"))
        flags = ["--path", checkpoint, "--cpu"]
        said = sentence_of("eval_lm", tmp_path, *flags)
        assert said.startswith("The data's dictionary is not the one this checkpoint was trained")

        # Checkpoints of others do not remember their dictionary; there the shapes tell.
        state = torch.load(checkpoint)
        state.pop("task_state")
        torch.save(state, tmp_path / "other.pt")
        said = sentence_of("eval_lm", tmp_path, "--path", tmp_path / "other.pt", "--cpu")
        rows = len(dictionary)
        assert "dictionary of another size" in said
        assert f"has {rows - 2} rows there and {rows} here" in said

    def test_the_default_task_is_another(self, data_bin):
        said = sentence_of("train", data_bin, "--arch", "alibi_lm_tiny", "--max-tokens", 64)
        assert "add --task language_modeling" in said

    def test_an_unknown_architecture(self, data_bin, checkpoint, tmp_path):
        state = torch.load(checkpoint)
        state["cfg"]["model"]["_name"] = "of_a_stranger"
        torch.save(state, tmp_path / "strange.pt")
        said = sentence_of("eval_lm", data_bin, "--path", tmp_path / "strange.pt", "--cpu")
        assert said.startswith("There is no model 'of_a_stranger';")

    def test_too_few_tokens_for_a_sample(self, data_bin, checkpoint):
        flags = ["--path", checkpoint, "--cpu", "--tokens-per-sample", 16, "--max-tokens", 8]
        assert sentence_of("eval_lm", data_bin, *flags).startswith("--max-tokens 8 is less than")


class TestExplain:
    def test_what_is_not_the_users_mistake(self):
        assert explain(RuntimeError("out of memory")) is None
        assert explain(KeyError("best_loss")) is None
        text = "\n\n-- Process 1 terminated with the following error:\nTraceback …\nKeyError: 'x'\n"
        assert explain(ProcessRaisedException(text, 1, 1)) is None

    def test_one_line(self):
        assert explain(BadInput("on\n two lines")) == "on two lines"
        assert explain(MissingConfigException("no such\nfile", "x")) == "no such file"

    def test_from_a_spawned_process(self):
        text = (
            "\n\n-- Process 0 terminated with the following error:\nTraceback (most recent call "
            'last):\n  File "x.py", line 1\nValueError: inner\n\nDuring handling of the above '
            "exception, another exception occurred:\n\nTraceback (most recent call last):\n"
            "alibi_fairseq.errors.BadInput: Wrong: do this.\n"
        )
        assert explain(ProcessRaisedException(text, 0, 1)) == "Wrong: do this."

    def test_types_that_are_not_safe_to_load(self):
        error = pickle.UnpicklingError(
            "Weights only load failed. (1) … WeightsUnpickler error: Unsupported global: GLOBAL "
            "posix.system was not an allowed global by default."
        )
        assert "posix.system" in explain(error)
