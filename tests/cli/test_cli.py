"""The command ``alibi-fairseq`` and the commands of fairseq that it runs."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from commands import PACKAGE, ROOT, SHORT, as_process, in_process

from alibi_fairseq import cli
from alibi_fairseq.cli.models import layer_parameters
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models.config import LargeConfig

pytestmark = pytest.mark.usefixtures("arguments_of_pytest_stay")


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_do_not_import_torch(flag):
    done = as_process("-m", "alibi_fairseq", flag, python=["-X", "importtime"])
    assert done.returncode == 0
    assert "alibi-fairseq" in done.stdout
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "alibi_fairseq.cli" in imported
    assert not {"fairseq", "torch", "numpy"} & imported


def test_models_lists_sizes(capsys):
    assert cli.main(["models"]) == 0
    printed = capsys.readouterr().out
    table, _, _ = printed.partition("\n\n")
    assert table in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    lines = printed.splitlines()
    assert any(
        line.replace("|", "").split()[:7] == ["alibi_lm_tiny", "3", "128", "8", "8", "512", "mlp"]
        for line in lines
    )
    assert any("alibi," in line and "sinusoidal," in line for line in lines)
    # The layers of the 1.3B model, counted by PyTorch.
    config = LargeConfig()
    layer = torch.nn.TransformerEncoderLayer(
        config.decoder_embed_dim, config.decoder_attention_heads, config.decoder_ffn_embed_dim
    )
    counted = 25 * sum(parameter.numel() for parameter in layer.parameters())
    assert layer_parameters(config) == counted


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserInputError("Wrong: do this."), 2, "error: Wrong: do this."),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_error_prints_one_line(monkeypatch, capsys, error, code, message):
    def fail(self):
        raise error

    monkeypatch.setattr("alibi_fairseq.cli.models.Models.__call__", fail)
    assert cli.main(["models"]) == code
    assert capsys.readouterr().err == f"alibi-fairseq: {message or 'interrupted'}\n"


class TestFairseqCommands:
    @pytest.mark.slow  # tests/training/test_signals.py also trains in a process
    def test_train_in_separate_process(self, data_bin, tmp_path):
        command = ["-m", "alibi_fairseq", "train", data_bin, *SHORT, "--save-dir", tmp_path]
        done = as_process(*command, cwd=PACKAGE.parent)
        assert done.returncode == 0, done.stderr[-2000:]
        assert f"'user_dir': '{PACKAGE}'" in done.stdout
        assert "num_updates 3" in done.stdout
        assert (tmp_path / "checkpoint_last.pt").is_file()

    def test_eval_lm_past_the_training_length(self, data_bin, checkpoint, caplog):
        flags = ["--path", checkpoint, "--tokens-per-sample", 256, "--max-tokens", 256, "--cpu"]
        with caplog.at_level("INFO"):
            assert cli.main(["eval-lm", str(data_bin), *map(str, flags)]) == 0
        assert "Perplexity: " in caplog.text

    def test_validate(self, data_bin, checkpoint):
        flags = ["--path", checkpoint, "--task", "language_modeling", "--max-tokens", 128, "--cpu"]
        flags += ["--valid-subset", "valid", "--tokens-per-sample", 16]
        assert cli.main(["validate", str(data_bin), *map(str, flags)]) == 0

    @pytest.fixture
    def decoding(self, data_bin, checkpoint):
        flags = [data_bin, "--path", checkpoint, "--task", "language_modeling", "--cpu"]
        flags += ["--max-len-b", 24, "--beam", 2, "--sample-break-mode", "eos"]
        return list(map(str, flags))

    @pytest.fixture(scope="class")
    def stock_checkpoint(self, data_bin, tmp_path_factory):
        """Return a checkpoint of fairseq's own model."""
        folder = tmp_path_factory.mktemp("stock")
        in_process("train", data_bin, *SHORT, "--arch", "transformer_lm", "--save-dir", folder)
        return folder / "checkpoint_last.pt"

    @pytest.fixture(scope="class")
    def data_with_empty_lines(self, data_bin, tmp_path_factory):
        """Return a split whose lines are empty, short, or longer than --max-len-b."""
        folder = tmp_path_factory.mktemp("empty-lines")
        lines = ["", "w1 w2", " ".join(["w3"] * 14)] * 8
        (folder / "test.txt").write_text("\n".join(lines) + "\n")
        in_process(
            *("preprocess", "--only-source", "--srcdict", data_bin / "dict.txt", "--workers", 1),
            *("--testpref", folder / "test.txt", "--destdir", folder / "data-bin"),
        )
        return folder / "data-bin"

    def test_generate(self, decoding, capsys):
        assert cli.main(["generate", *decoding, "--batch-size", "4"]) == 0
        scores = [
            line.split("\t")[1] for line in capsys.readouterr().out.splitlines() if line[:2] == "H-"
        ]
        assert len(scores) >= 16
        assert all(math.isfinite(float(score)) for score in scores)

    def test_generate_is_one_process(self, decoding, capsys, monkeypatch):
        """fairseq would print the results of the first process only, or all of them twice."""
        printed = []
        for flags in ([], ["--distributed-world-size", "2"]):
            assert cli.main(["generate", *decoding, "--batch-size", "4", *flags]) == 0
            lines = capsys.readouterr().out.splitlines()
            printed.append([line for line in lines if line.startswith("H-")])
        assert printed[0]
        assert printed[1] == printed[0]
        torchrun = {"MASTER_ADDR": "localhost", "MASTER_PORT": 1, "WORLD_SIZE": 2, "RANK": 1}
        for name, value in torchrun.items():
            monkeypatch.setenv(name, str(value))
        assert cli.main(["generate", *decoding, "--batch-size", "4"]) == 2
        assert "fairseq-generate does not aggregate" in capsys.readouterr().err

    @pytest.mark.ci
    def test_plain_generate_is_one_process(self, decoding):
        """The module itself, as torchrun starts it."""
        command = ["-m", "fairseq_cli.generate", *decoding, "--user-dir", PACKAGE]
        torchrun = {"MASTER_ADDR": "localhost", "MASTER_PORT": 1, "WORLD_SIZE": 2, "RANK": 1}
        rejected = as_process(*command, "--batch-size", 4, **torchrun)
        assert rejected.returncode == 2
        assert "fairseq-generate does not aggregate" in rejected.stderr

    @pytest.mark.ci
    @pytest.mark.parametrize(
        ("model", "mode"), [("ours", "none"), ("ours", "eos"), ("stock", "eos")]
    )
    def test_generate_continues_data_with_empty_lines(
        self, checkpoint, stock_checkpoint, data_with_empty_lines, model, mode, capsys
    ):
        """Plain fairseq finishes: whoever prepared the data typed none of its rows."""
        path = {"ours": checkpoint, "stock": stock_checkpoint}[model]
        flags = [data_with_empty_lines, "--path", path, "--task", "language_modeling", "--cpu"]
        flags += ["--tokens-per-sample", 16, "--sample-break-mode", mode, "--beam", 1]
        flags += ["--max-len-b", 12, "--gen-subset", "test", "--batch-size", 4]
        for prefix_size in ("0", "8"):
            command = ["generate", *map(str, flags), "--prefix-size", prefix_size]
            assert cli.main(command) == 0
            lines = capsys.readouterr().out.splitlines()
            rows = {line.split("\t")[0][2:] for line in lines if line.startswith("S-")}
            hypotheses = {line.split("\t")[0][2:] for line in lines if line.startswith("H-")}
            assert len(rows) >= 10
            assert hypotheses == rows

    @pytest.mark.ci
    def test_interactive(self, decoding, tmp_path, capsys):
        (tmp_path / "input").write_text("w1 w2\nw3 w4 w5\n")
        command = ["interactive", *decoding, "--input", str(tmp_path / "input")]
        assert cli.main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("S-")] == ["S-0\tw1 w2", "S-1\tw3 w4 w5"]
        hypotheses = [line.split("\t")[2] for line in lines if line.startswith("H-")]
        assert hypotheses[1].startswith("w3 w4 w5")

    def test_user_dir_option_replaces_package(self, tmp_path, monkeypatch):
        plugin = tmp_path / "my_plugin_for_train"
        plugin.mkdir()
        (plugin / "__init__.py").touch()
        monkeypatch.setattr("fairseq_cli.train.cli_main", lambda: None)
        assert cli.main(["train", "data", "--user-dir", str(plugin)]) == 0
        assert sys.argv == ["alibi-fairseq train", "data", "--user-dir", str(plugin)]
        assert cli.main(["train", "data"]) == 0
        assert sys.argv == ["alibi-fairseq train", "data", "--user-dir", str(PACKAGE)]

    @pytest.mark.parametrize("flags", [[], ["--arch", "alibi_lm_small"]])
    def test_train_help_shows_model_options(self, flags, capsys):
        assert cli.main(["train", "--help", *flags]) == 0
        text = capsys.readouterr().out
        for option in ("--position-method", "--attention-backend", "--mem-len", "--max-update"):
            assert option in text
        # The options of this package come first, and once.
        ours = ["--position-method", "--alibi-slopes", "--attention-backend", "--mem-len"]
        first_of_fairseq = text.index("--no-progress-bar")
        for option in ours:
            assert text.count(f"  {option} ") == 1
            assert text.index(option) < first_of_fairseq
        assert text.index("--dropout") > first_of_fairseq
