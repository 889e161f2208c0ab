"""Workarounds for gradients that overflow or are scaled wrongly."""

from __future__ import annotations

import torch
from fairseq.optim import AMPOptimizer
from fairseq.trainer import Trainer

from . import patch_method


@patch_method(Trainer, "train_step")
def keep_gradient_norm_on_cpu(train_step, trainer, *arguments, **keywords):
    """Keep tensors on the CPU during an update without a GPU.

    When gradients overflow, fairseq moves their norm to a GPU even with ``--cpu``, which ends a
    training with ``--memory-efficient-fp16`` (facebookresearch/fairseq#5296 has such an error,
    without its cause).
    """
    if trainer.cuda:
        return train_step(trainer, *arguments, **keywords)
    move_to_gpu = torch.Tensor.cuda
    torch.Tensor.cuda = lambda tensor: tensor  # type: ignore
    try:
        return train_step(trainer, *arguments, **keywords)
    finally:
        torch.Tensor.cuda = move_to_gpu  # type: ignore


@patch_method(AMPOptimizer, "step")
def step_with_unscaled_optimizer(step, amp):
    """Divide the gradients by the loss scale of ``--amp`` once.

    fairseq lets the scaler divide the gradients of PyTorch's optimizer before it clips them, and
    those of its own optimizer around it before the update. The scaler takes the two for different
    optimizers, and divides the same gradients again (not reported upstream).
    """
    amp.scaler.step(amp.optimizer)
    amp.scaler.update()
