"""Workaround for losses that overflow in the logs."""

from __future__ import annotations

import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss

from . import patch_method


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
