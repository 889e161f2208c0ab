"""Layers compiled with ``--compile-layers`` against layers that are not."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo.utils as dynamo
from conftest import random_tokens, small_model

pytestmark = pytest.mark.slow  # the C++ compiler takes most of the time

WITHOUT_DROPOUT = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0")
MODERN = ("--normalization", "rms", "--ffn", "swiglu")


def loss_and_gradients(model, tokens):
    model.zero_grad()
    loss = model(tokens)[0].logsumexp(-1).square().mean()
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return loss.detach(), [gradient.clone() for gradient in gradients if gradient is not None]


@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("alibi", ()),
        ("rotary", MODERN),
        ("t5", ("--checkpoint-activations",)),
        ("fox", ()),
    ],
)
def test_compiled_layers_give_equal_losses_and_gradients(method, flags):
    torch._dynamo.reset()
    dynamo.counters.clear()
    model = small_model(method, *WITHOUT_DROPOUT, *flags).train()
    compiled = small_model(method, *WITHOUT_DROPOUT, *flags, "--compile-layers").train()
    compiled.load_state_dict(model.state_dict())
    graphs = []
    for batch, length in ((2, 24), (3, 24), (2, 17), (4, 30), (5, 19)):
        tokens = random_tokens(batch, length)
        loss, gradients = loss_and_gradients(model, tokens)
        compiled_loss, compiled_gradients = loss_and_gradients(compiled, tokens)
        torch.testing.assert_close(compiled_loss, loss, rtol=1e-6, atol=0)
        # The gradient of a key bias is zero except for rounding.
        largest = max(gradient.abs().max() for gradient in gradients)
        for actual, expected in zip(compiled_gradients, gradients, strict=True):
            scale = expected.abs().max().clamp(min=largest / 100)
            assert (actual - expected).abs().max() < 1e-5 * scale
        graphs.append(dynamo.counters["stats"]["unique_graphs"])
    assert graphs[0] > 0
    assert graphs[-1] == graphs[2]  # a changing size is compiled once more, for all its values


def test_evaluation_is_not_compiled():
    dynamo.counters.clear()
    model = small_model("alibi", "--compile-layers")
    with torch.no_grad():
        model(random_tokens(2, 24))
    assert dynamo.counters["stats"]["unique_graphs"] == 0
