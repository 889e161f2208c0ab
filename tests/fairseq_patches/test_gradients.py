"""Gradients that overflow or are scaled."""

from __future__ import annotations

import logging

import pytest
import torch
from fairseq.optim import AMPOptimizer, MemoryEfficientFP16Optimizer
from fairseq.trainer import Trainer
from fairseq_runs import equal, run_train, training_config, write_corpus
from torch import nn

from alibi_fairseq.results.file import load
from alibi_fairseq.results.file_names import TRAINING_FILE

FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64")


def test_training_on_cpu_survives_gradient_overflow(tmp_path, caplog):
    (tmp_path / "data").mkdir()
    data = write_corpus(tmp_path / "data", train=800, valid=100)
    move_to_gpu = torch.Tensor.cuda
    with caplog.at_level(logging.INFO):
        state = run_train(
            *(data, tmp_path / "run", *FLAGS, "--max-update", "4"),
            *("--memory-efficient-fp16", "--fp16-init-scale", "1000000"),
        )
    assert "gradient overflow detected" in caplog.text
    assert state["optimizer_history"][-1]["num_updates"] == 4
    assert all(weight.isfinite().all() for weight in state["model"].values())
    assert torch.Tensor.cuda is move_to_gpu


def amp_optimizer(parameter: nn.Parameter, name: str) -> AMPOptimizer:
    """Return the optimizer of ``--amp`` with a loss scale of 128, on the CPU."""
    flags = ["--arch", "alibi_lm_tiny", "--amp", "--optimizer", name, "--lr", "0.5"]
    optimizer = AMPOptimizer.build_optimizer(training_config(*flags), [parameter])
    optimizer._grad_scaler = torch.amp.GradScaler("cpu", init_scale=128)
    return optimizer


@pytest.mark.parametrize("name", ["nag", "adam", "fused_adam"])
def test_amp_divides_gradients_by_loss_scale_once(name):
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = amp_optimizer(parameter, name)
    applied = []
    optimizer.optimizer.register_step_pre_hook(lambda *_: applied.append(parameter.grad.clone()))
    gradient = torch.tensor([0.25, -1, 2])
    for _ in range(2):
        optimizer.zero_grad()
        optimizer.backward((parameter * gradient).sum())
        optimizer.clip_grad_norm(0)
        optimizer.step()
    assert torch.equal(torch.stack(applied), gradient.expand(2, 3))
    assert parameter.all()


def test_amp_skips_update_and_halves_loss_scale_after_overflow():
    parameter = nn.Parameter(torch.zeros(3))
    optimizer = amp_optimizer(parameter, "nag")
    optimizer.backward((parameter + 1).sum() * torch.inf)
    optimizer.clip_grad_norm(0)
    optimizer.step()
    assert not parameter.any()
    assert optimizer.scaler.get_scale() == 64


#: Two updates whose loss scales differ, as after an overflow.
LOSS_SCALES = (2**18, 2**17)


def memory_efficient_adam(parameter: nn.Parameter) -> MemoryEfficientFP16Optimizer:
    """Return the optimizer of ``--memory-efficient-fp16``, as for the paper's 1.3B parameters."""
    flags = ["--arch", "alibi_lm_tiny", "--fp16", "--memory-efficient-fp16"]
    adam = ["--optimizer", "adam", "--lr", "0.001", "--weight-decay", "0.1"]
    config = training_config(*flags, *adam)
    return MemoryEfficientFP16Optimizer.build_optimizer(config, [parameter])


def test_small_gradients_of_large_batches_keep_their_digits():
    """A batch has 2M tokens on 128 GPUs; fp16 holds nothing below 6e-8."""
    generator = torch.Generator().manual_seed(1)
    parameter = nn.Parameter(torch.randn(1000, generator=generator).half())
    weights = parameter.detach().double()
    optimizer = memory_efficient_adam(parameter)
    mean, square = torch.zeros(2, 1000, dtype=torch.float64)
    for update, loss_scale in enumerate(LOSS_SCALES, 1):
        gradient = 1e-7 * torch.randn(1000, generator=generator)
        optimizer.scaler.loss_scale = loss_scale
        optimizer.zero_grad()
        parameter.grad = (gradient * loss_scale * 2097152 / 128).half()
        true_gradient = parameter.grad.double() / (loss_scale * 2097152 / 128)
        optimizer.multiply_grads(128 / 2097152)
        optimizer.clip_grad_norm(0)
        optimizer.step()
        mean = 0.9 * mean + 0.1 * true_gradient
        square = 0.999 * square + 0.001 * true_gradient**2
        corrected = (1 - 0.999**update) ** 0.5 / (1 - 0.9**update)
        weights = weights * (1 - 0.1 * 0.001) - 0.001 * corrected * mean / (square.sqrt() + 1e-8)
        weights = weights.half().double()
    state = optimizer.optimizer.state[parameter]
    torch.testing.assert_close(state["exp_avg"].double(), mean, rtol=1e-6, atol=1e-14)
    torch.testing.assert_close(state["exp_avg_sq"].double(), square, rtol=1e-6, atol=1e-20)
    torch.testing.assert_close(parameter.double(), weights, rtol=2**-10, atol=0)
    assert list(optimizer.optimizer.state) == [parameter]
    assert optimizer.optimizer.param_groups[0]["params"] == [parameter]


def test_update_without_last_batch_of_a_process_is_divided_by_its_tokens(tmp_path, monkeypatch):
    """With ``--update-freq`` and several processes, some have fewer batches in the last update."""
    (tmp_path / "data").mkdir()
    data = write_corpus(tmp_path / "data", train=300, valid=100)
    flags = (*FLAGS, "--update-freq", "2", "--max-epoch", "1")
    whole = run_train(data, tmp_path / "whole", *flags)
    train_step = Trainer.train_step

    def step_with_missing_batch(trainer, samples, *rest):
        return train_step(trainer, [*samples, {}], *rest)

    monkeypatch.setattr(Trainer, "train_step", step_with_missing_batch)
    assert equal(run_train(data, tmp_path / "run", *flags)["model"], whole["model"])
    for name in ("whole", "run"):
        (validation,) = load(tmp_path / name / TRAINING_FILE).results
        assert validation.cost.trained_tokens == 300
