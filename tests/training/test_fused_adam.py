"""``--optimizer fused_adam`` compared with fairseq's ``adam``."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.adam import FairseqAdam

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin.fused_adam import FusedAdam

OPTIONS = {"lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.1}
OPTIONS["fp16_adam_stats"] = False


def make_parameters() -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(30, 8, generator=generator))
    bias = torch.nn.Parameter(torch.randn(5, generator=generator))
    return [weight, bias]


def update(optimizer, parameters: list, steps: range) -> None:
    """Run updates whose gradients depend on the step. At step 2, the bias has no gradient."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for index, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=generator)
            parameter.grad = None if (step, index) == (2, 1) else gradient
        optimizer.set_lr(0.01 / (1 + step))
        optimizer.step()


def test_updates_and_state_match_fairseq_adam():
    options = SimpleNamespace(**OPTIONS)
    expected = make_parameters()
    update(FairseqAdam(options, expected), expected, range(8))
    updated = make_parameters()
    update(FusedAdam(options, updated), updated, range(8))

    resumed = make_parameters()
    first_optimizer = FusedAdam(options, resumed)
    update(first_optimizer, resumed, range(5))
    second_optimizer = FusedAdam(options, resumed)
    second_optimizer.load_state_dict(copy.deepcopy(first_optimizer.state_dict()))
    update(second_optimizer, resumed, range(5, 8))

    for index, initial in enumerate(make_parameters()):
        assert (updated[index] - initial).abs().max() > 0.01
        torch.testing.assert_close(updated[index], expected[index], rtol=0, atol=1e-6)
        assert torch.equal(resumed[index], updated[index])


def test_half_precision_state_is_rejected():
    options = SimpleNamespace(**{**OPTIONS, "fp16_adam_stats": True})
    with pytest.raises(UserInputError, match="--fp16-adam-stats .* --optimizer adam"):
        FusedAdam(options, make_parameters())
