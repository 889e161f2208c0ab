"""ALiBi's position interpolation: slopes divided by the ratio of the lengths."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import PositionConfig, alibi_slopes, build_position_method

TRAIN_LENGTH = 32


def bias_of(scale: str, keys: int) -> torch.Tensor:
    config = PositionConfig(64, 8, 2, TRAIN_LENGTH, alibi_scale=scale)
    return build_position_method("alibi", config).bias(0, keys).at(torch.arange(keys))


@pytest.mark.parametrize(
    "scale,keys,ratio",
    [
        ("none", 128, 1.0),
        ("dynamic", 16, 1.0),
        ("dynamic", 32, 1.0),
        ("dynamic", 80, 2.5),
        ("4", 16, 4.0),
        ("0.5", 128, 0.5),
    ],
)
def test_slopes_are_divided(scale, keys, ratio):
    expected = -(alibi_slopes(8).double() / ratio)[:, None] * torch.arange(keys)
    torch.testing.assert_close(bias_of(scale, keys).double(), expected, rtol=1e-6, atol=0)


def test_dynamic_keeps_the_largest_bias_of_training():
    trained = bias_of("dynamic", TRAIN_LENGTH)[:, -1]
    longer = bias_of("dynamic", 16 * TRAIN_LENGTH)[:, -1]
    torch.testing.assert_close(longer, trained, rtol=0.04, atol=0)


@torch.no_grad()
def test_the_option_reaches_the_model():
    tokens = random_tokens(1, 4 * TRAIN_LENGTH)
    models = [small_model("alibi", "--alibi-scale", scale) for scale in ("none", "4", "dynamic")]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    plain, factor, dynamic = (model(tokens)[0] for model in models)
    assert torch.equal(factor, dynamic)
    assert (plain - factor).abs().max() > 1e-3


@pytest.mark.parametrize("scale", ["dynamc", "-1", "0", "nan", "inf", ""])
def test_anything_else_is_refused(scale):
    with pytest.raises(BadInput, match="none, dynamic or a positive number"):
        bias_of(scale, 8)
