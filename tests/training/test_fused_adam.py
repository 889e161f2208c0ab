"""``--optimizer fused_adam`` compared with fairseq's ``adam``."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.adam import FairseqAdam

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.training.fused_adam import FusedAdam

OPTIONS = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.1}
OPTIONS["fp16_adam_stats"] = False


def parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((30, 8), (5,))
    ]


def update(optimizer, own: list, steps: range) -> None:
    """Run updates with gradients by step; the second parameter misses one."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for index, parameter in enumerate(own):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if (step, index) == (2, 1) else gradient
        optimizer.set_lr(0.01 / (1 + step))
        optimizer.step()


def test_updates_and_state_match_fairseq_adam():
    theirs = parameters()
    ours = parameters()
    first = parameters()
    update(FairseqAdam(SimpleNamespace(**OPTIONS), theirs), theirs, range(8))
    update(FusedAdam(SimpleNamespace(**OPTIONS), ours), ours, range(8))
    optimizer = FusedAdam(SimpleNamespace(**OPTIONS), first)
    update(optimizer, first, range(5))
    resumed = FusedAdam(SimpleNamespace(**OPTIONS), first)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    update(resumed, first, range(5, 8))
    for found, again, expected, start in zip(ours, first, theirs, parameters(), strict=True):
        assert (found - start).abs().max() > 0.01
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        assert torch.equal(again, found)


def test_options_of_other_optimizers_are_rejected():
    with pytest.raises(UserInputError, match="--fp16-adam-stats needs --optimizer adam"):
        FusedAdam(SimpleNamespace(**{**OPTIONS, "fp16_adam_stats": True}), parameters())
