"""Gradients that overflow in fp16 on the CPU."""

from __future__ import annotations

import logging

import torch
from fairseq_runs import run_train, write_corpus

FLAGS = (
    *("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64"),
    *("--memory-efficient-fp16", "--fp16-init-scale", "1000000"),
)


def test_training_on_cpu_survives_gradient_overflow(tmp_path, caplog):
    (tmp_path / "data").mkdir()
    data = write_corpus(tmp_path / "data", train=800, valid=100)
    move_to_gpu = torch.Tensor.cuda
    with caplog.at_level(logging.INFO):
        state = run_train(data, tmp_path / "run", *FLAGS, "--max-update", "4")
    assert "gradient overflow detected" in caplog.text
    assert state["optimizer_history"][-1]["num_updates"] == 4
    assert all(weight.isfinite().all() for weight in state["model"].values())
    assert torch.Tensor.cuda is move_to_gpu
