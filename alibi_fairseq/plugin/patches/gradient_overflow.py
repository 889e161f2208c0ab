"""Workaround for gradients that overflow in fp16 on the CPU."""

from __future__ import annotations

import torch
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
