"""Layers compiled with ``--compile-layers`` against layers that are not."""

from __future__ import annotations

import functools

import pytest
import torch
import torch._dynamo.utils as dynamo
from conftest import random_tokens, small_model

from alibi_fairseq.models import decoder
from alibi_fairseq.models.self_attention import SelfAttention

WITHOUT_DROPOUT = ("--dropout", "0", "--attention-dropout", "0", "--activation-dropout", "0")
MODERN = ("--normalization", "rms", "--ffn", "swiglu")
CHECKPOINTED = ("--checkpoint-activations",)
DROPPED = ("--decoder-layerdrop", "0.3")


@pytest.fixture(autouse=True)
def _every_layer_must_be_compiled():
    """Make it an error that PyTorch computes a layer without compiling it."""
    torch._dynamo.reset()
    dynamo.counters.clear()
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield


@pytest.fixture
def without_code_generation(monkeypatch):
    """Compile graphs, but compute them by PyTorch's operators, since that takes less time."""
    compile_graphs = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compile_graphs)
    monkeypatch.setattr(SelfAttention, "forward", SelfAttention.forward)  # restored afterwards
    decoder.compiled_layer.cache_clear()
    yield
    decoder.compiled_layer.cache_clear()


def loss_and_gradients(model, tokens):
    model.zero_grad()
    loss = model(tokens)[0].logsumexp(-1).square().mean()
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return loss.detach(), [gradient.clone() for gradient in gradients if gradient is not None]


@pytest.mark.slow  # the C++ compiler takes most of the time
@pytest.mark.parametrize(
    ("method", "flags"),
    [
        ("alibi", ()),
        ("rotary", MODERN),
        ("t5", CHECKPOINTED),
        ("fox", ()),
    ],
)
def test_compiled_layers_give_equal_losses_and_gradients(method, flags):
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


@pytest.mark.ci
@pytest.mark.parametrize(
    ("layers", "flags"),
    [
        (2, ()),
        (16, ()),
        (16, CHECKPOINTED),
        (16, DROPPED),
        (25, ()),
        (25, (*CHECKPOINTED, *DROPPED)),
    ],
)
def test_layers_share_compiled_code(layers, flags, without_code_generation):
    """Count the graphs of a layer: before and after attention, for each size that has changed."""
    depth = ("--decoder-layers", str(layers))
    model = small_model("alibi", *depth, *flags, "--compile-layers").train()
    graphs = []
    for batch, length in ((2, 24), (3, 24), (2, 17), (4, 30), (5, 19)):
        for _ in range(2):  # layer drop can leave no layer of two
            model(random_tokens(batch, length))[0].sum().backward()
        graphs.append(dynamo.counters["stats"]["unique_graphs"])
    assert graphs == [2, 6, 10, 10, 10]


def test_evaluation_is_not_compiled():
    model = small_model("alibi", "--compile-layers")
    with torch.no_grad():
        model(random_tokens(2, 24))
    assert dynamo.counters["stats"]["unique_graphs"] == 0
