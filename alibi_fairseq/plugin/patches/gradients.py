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


@patch_method(Trainer, "train_step")
def leave_out_missing_batches(train_step, trainer, samples, *arguments, **keywords):
    """Count the batches of a process that has fewer than others in the last update of an epoch.

    fairseq fills up with dummy batches. If the last batch of a process is one, it counts none of
    the tokens of this process, but adds their gradients (not reported upstream). A process without
    any batch still needs a dummy batch. With ``--ddp-backend fully_sharded``, all processes must
    have equally many batches, because they communicate in each of them.
    """
    while len(samples) > 1 and not samples[-1] and not trainer.is_fsdp:
        samples = samples[:-1]
    return train_step(trainer, samples, *arguments, **keywords)
