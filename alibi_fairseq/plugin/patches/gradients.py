"""Workarounds for losses and gradients that overflow or are scaled wrongly."""

from __future__ import annotations

import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.optim import AMPOptimizer
from fairseq.optim.adam import Adam
from fairseq.optim.fp16_optimizer import _MemoryEfficientFP16OptimizerMixin
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


@patch_method(_MemoryEfficientFP16OptimizerMixin, "step")
def unscale_gradients_in_fp32(step, optimizer, *arguments, **keywords):
    """Divide the gradients of ``--memory-efficient-fp16`` by their scale in fp32 before Adam.

    fairseq divides fp16 gradients by the loss scale and by the number of tokens, and only then
    converts them to fp32. The gradients of large batches are below 1e-5 after that, so that they
    lose digits or become zero in fp16 (not reported upstream). With NVIDIA's apex, fairseq uses
    its Adam, which divides in fp32 by itself.
    """
    adam = optimizer.optimizer
    if not isinstance(adam, Adam):
        return step(optimizer, *arguments, **keywords)
    groups = adam.param_groups
    try:
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    gradient = parameter.grad.float() * optimizer._multiply_factor
                    _update_in_fp32(adam, group, parameter, gradient)
    finally:
        adam.param_groups = groups
    if optimizer.scaler is not None:
        optimizer.scaler.update()


def _update_in_fp32(
    adam: Adam, group: dict, parameter: torch.nn.Parameter, gradient: torch.Tensor
) -> None:
    """Update one parameter of a group with an fp32 gradient.

    Adam sees an fp32 copy, because the gradient of an fp16 parameter can't be fp32. Only one
    copy exists at a time, as in Adam itself.
    """
    copy = parameter.detach().float()
    copy.grad = gradient
    adam.param_groups = [{**group, "params": [copy]}]
    adam.state[copy] = adam.state.pop(parameter, {})
    adam.step()
    adam.state[parameter] = adam.state.pop(copy)
    parameter.data.copy_(copy)


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


@patch_method(AdaptiveLoss, "forward")
def log_adaptive_loss_in_fp32(forward, criterion, *arguments, **keywords):
    """Convert the loss that ``adaptive_loss`` logs to fp32.

    fairseq adds up the losses of an update's passes in the precision of the model. In fp16, the
    sum overflows with a few passes of the paper's 9,216 tokens, and the logged loss and perplexity
    are infinite (facebookresearch/fairseq#4293 reports them, without the cause).
    """
    loss, sample_size, logged = forward(criterion, *arguments, **keywords)
    precision = torch.promote_types(logged["loss"].dtype, torch.float32)  # fp64 stays
    return loss, sample_size, {**logged, "loss": logged["loss"].to(precision)}
