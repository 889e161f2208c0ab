"""``--compile`` computes what the model computes without it."""

from __future__ import annotations

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from torch._dynamo.utils import counters

from alibi_fairseq.models import self_attention

SMALL = ["--arch", "alibi_lm_tiny", "--decoder-layers", "3", "--dropout", "0.2"]
SMALL += ["--activation-dropout", "0.1"]


def pair(*flags: str):
    """The same model without and with ``--compile``, in training mode.

    In float64: rounding may take a ReLU across zero, which changes a gradient by more than rounding.
    """
    plain, compiled = (
        build_model(*SMALL, *flags, *more).double().train() for more in ((), ("--compile",))
    )
    compiled.load_state_dict(plain.state_dict())
    return plain, compiled


def step(model, tokens) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model.zero_grad()
    loss = model(tokens)[0].log_softmax(-1).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


@pytest.mark.slow  # the C++ compiler takes most of the time
@pytest.mark.parametrize(
    "flags",
    [
        (),
        # Not gelu: the compiler's erf has eight digits, even in float64.
        ("--no-decoder-normalize-before", "--activation-fn", "gelu_accurate"),
        ("--checkpoint-activations",),
        ("--position-method", "transformer_xl"),
    ],
    ids=" ".join,
)
def test_losses_and_gradients_are_the_same(flags):
    plain, compiled = pair(*flags)
    for length in (16, 48):
        tokens = random_tokens(2, length)
        for found, expected in zip(step(compiled, tokens), step(plain, tokens), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_layers_lengths_and_evaluation_do_not_compile_again():
    _, compiled = pair()
    step(compiled, random_tokens(2, 16))
    step(compiled, random_tokens(3, 24))
    counters.clear()
    for sequences, length in ((2, 32), (5, 17), (4, 64)):
        step(compiled, random_tokens(sequences, length))
    compiled.eval()(random_tokens(2, 40))
    assert not counters["stats"]


def test_what_a_backend_compiles_by_itself_stays_compiled(monkeypatch):
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    twice = torch.compile(lambda x: 2 * x, backend=count)
    monkeypatch.setattr(self_attention, "attend", lambda q, k, v, *rest, **more: (twice(v), None))
    small_model()(random_tokens(1, 8))
    assert graphs
