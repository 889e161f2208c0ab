"""Workarounds compared with fairseq without them."""

from __future__ import annotations

import argparse
import inspect
import logging
import math
import os
import pickle
import shutil
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy
import pytest
import torch
from fairseq import checkpoint_utils, file_io, options
from fairseq.data import TokenBlockDataset, token_block_dataset
from fairseq.dataclass.configs import CheckpointConfig
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin.patches import libraries


@pytest.mark.skipif(hasattr(numpy, "compat"), reason="NumPy 1 has it")
def test_token_blocks_without_numpy_compat(monkeypatch):
    def sentences():
        tokens = [torch.tensor([4, 5, 2]), torch.tensor([6, 2])]
        return TokenBlockDataset(tokens, [3, 2], None, pad=1, eos=2, break_mode="eos")

    assert [tokens.tolist() for tokens in sentences()] == [[4, 5, 2], [6, 2]]
    assert not hasattr(numpy, "compat")
    monkeypatch.setattr(token_block_dataset, "np", numpy)
    with pytest.raises(AttributeError, match="compat"):
        sentences()


def test_relative_interpolation():
    """OmegaConf 2.0 of fairseq 0.12.2 needs the workaround."""
    section = {"mem_len": 3, "train_mem_len": "${.mem_len}", "absolute": "${mem_len}"}
    config = OmegaConf.create({"mem_len": 5, "model": section})
    assert config.model.train_mem_len == 3
    assert config.model.absolute == 5
    resolved = OmegaConf.to_container(config, resolve=True)
    assert resolved["model"] == {"mem_len": 3, "train_mem_len": 3, "absolute": 5}
    del config.model["mem_len"]
    with pytest.raises(OmegaConfBaseException, match="mem_len' not found"):
        config.model.train_mem_len  # noqa: B018


class Evil:
    def __reduce__(self):
        return os.system, ("echo harm",)


def older_checkpoint(path, **entries) -> str:
    """Write a checkpoint as fairseq 0.9 to 1.0 did."""
    state = {
        "args": argparse.Namespace(
            arch="transformer_lm", task="language_modeling", tokens_per_sample=16, lr=[0.1]
        ),
        "notes": OmegaConf.create({"lr": [0.1], "arch": "transformer_lm"}),
        "model": {"weight": torch.ones(2)},
        "extra_state": {"best": numpy.float64(2.5), "epoch": 1},
        "optimizer_history": [{"num_updates": 1, "best_loss": 2.5}],
        "last_optimizer_state": None,
        **entries,
    }
    torch.save(state, path)
    return str(path)


def test_older_checkpoints_load(tmp_path):
    path = older_checkpoint(tmp_path / "old.pt")
    load = checkpoint_utils.load_checkpoint_to_cpu
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        inspect.unwrap(load)(path)
    state = load(path)
    assert state["cfg"].task.tokens_per_sample == 16
    assert state["notes"].lr == [0.1]
    assert state["extra_state"]["best"] == 2.5
    with pytest.raises(pickle.UnpicklingError, match="Weights only"):
        torch.load(path)  # the types were allowed only above
    with pytest.raises(UserInputError, match=r"evil.pt asks for posix.system"):
        load(older_checkpoint(tmp_path / "evil.pt", extra=Evil()))


@pytest.mark.parametrize("flag", ["--bf16", "--memory-efficient-bf16"])
def test_bf16_does_not_imply_tpu(flag):
    def parse_options(parse, *flags):
        command = ["data", "--arch", "alibi_lm_tiny", "--task", "language_modeling", *flags]
        return parse(options.get_training_parser(), command)

    assert parse_options(inspect.unwrap(options.parse_args_and_arch), flag).tpu
    args = parse_options(options.parse_args_and_arch, flag)
    assert args.bf16
    assert not args.tpu
    assert parse_options(options.parse_args_and_arch, flag, "--tpu").tpu


def test_interrupted_copy_keeps_old_file(monkeypatch, tmp_path):
    new = tmp_path / "checkpoint_1_100.pt"
    last = tmp_path / "checkpoint_last.pt"
    copy = file_io.PathManager.copy
    new.write_bytes(b"new")
    last.write_bytes(b"old")

    def interrupted_copy(source, target):
        with open(target, "wb") as file:
            file.write(b"n")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", interrupted_copy)
        with pytest.raises(KeyboardInterrupt):
            copy(str(new), str(last), overwrite=True)
        assert last.read_bytes() == b"old"
        with pytest.raises(KeyboardInterrupt):
            inspect.unwrap(copy)(str(new), str(last), overwrite=True)
        assert last.read_bytes() == b"n"
    assert copy(str(new), str(last), overwrite=True)
    assert last.read_bytes() == b"new"


def test_user_programs_keep_warnings_and_logging(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program.py"])  # commands in this process change it
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler()])
    root.handlers[0].setFormatter(logging.Formatter("%(message)s"))
    before = list(warnings.filters), root.level, list(root.handlers)
    libraries.silence_hydra_advice()
    libraries.restore_logging()
    monkeypatch.setattr(libraries, "is_command", lambda: True)
    libraries.restore_logging()  # as a command that configured it before
    assert (list(warnings.filters), root.level, list(root.handlers)) == before


@pytest.mark.parametrize("sign", [1, -1])
def test_undefined_loss_is_not_the_best(monkeypatch, tmp_path, sign):
    monkeypatch.setattr(checkpoint_utils.save_checkpoint, "best", sign * 4.0, raising=False)
    options = CheckpointConfig(save_dir=str(tmp_path), maximize_best_checkpoint_metric=sign < 0)
    epochs = SimpleNamespace(epoch=1, end_of_epoch=lambda: False, state_dict=dict)
    trainer = SimpleNamespace(
        task=None,
        hooks=Mock(),
        data_parallel_rank=0,
        should_save_checkpoint_on_current_rank=True,
        checkpoint_suffix="",
        consolidate_optimizer=lambda: None,
        get_num_updates=lambda: 5,
    )
    bests = []
    for loss in (3.0, math.nan, 3.5, 2.5):
        trainer.save_checkpoint = lambda path, state, loss=loss: Path(path).write_text(f"{loss}")
        checkpoint_utils.save_checkpoint(options, trainer, epochs, sign * loss)
        assert (tmp_path / "checkpoint_last.pt").read_text() == f"{loss}"
        bests.append((tmp_path / "checkpoint_best.pt").read_text())
    assert bests == ["3.0", "3.0", "3.0", "2.5"]
