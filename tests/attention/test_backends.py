"""Every backend gives the values and gradients of the readable reference."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from attention_calls import Call, assert_close, results

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import METHODS, PositionConfig, build_position_method

#: Largest difference to the reference in float64, relative to the largest value.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 5e-6,
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
}


def rounded_reference(call: Call):
    """The reference in float64 on the inputs as the type of the call holds them."""

    class Rounded(Call):
        def tensors(self, seed=0):
            return [x.double() for x in super().tensors(seed)]

    return results(Rounded(**dataclasses.asdict(call)), "eager")


@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "skipping"])
@pytest.mark.parametrize("heads", [1, 2, 8, 12])
@pytest.mark.parametrize("cached", [0, 170])
def test_alibi_equals_the_reference(backend, heads, cached):
    call = Call(heads=heads, cached=cached)
    assert_close(results(call, backend), rounded_reference(call), TOLERANCE[torch.float32])


@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "skipping"])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_alibi_in_every_type(backend, dtype):
    call = Call(dtype=dtype)
    assert_close(results(call, backend), rounded_reference(call), TOLERANCE[dtype])


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("cached", [0, 33])
@pytest.mark.parametrize("padded", [False, True])
def test_sdpa_runs_every_method(method, cached, padded):
    call = Call(method=method, cached=cached, padded=padded)
    torch.manual_seed(1)  # learned biases start random
    expected = rounded_reference(call)
    torch.manual_seed(1)
    found = results(call, "sdpa")
    # CoPE's gradient jumps where a count is a whole number, so rounding may take it to the other side.
    assert_close(found, expected, 2e-2 if method == "cope" else TOLERANCE[torch.float32])
    assert (found[0] - expected[0]).abs().max() < 5e-6 * expected[0].abs().max()


@pytest.mark.parametrize("heads", [1, 2, 8, 12])
@pytest.mark.parametrize("length", [1, 63, 64, 257])
@pytest.mark.parametrize("padded", [False, True])
def test_auto_equals_the_reference(heads, length, padded):
    call = Call(heads=heads, length=length, cached=20, padded=padded)
    assert_close(results(call, "auto"), rounded_reference(call), TOLERANCE[torch.float32])


@pytest.mark.parametrize("method", ["t5", "kerple", "transformer_xl", "fire", "cope", "bam"])
def test_learned_biases_get_the_gradient_of_the_reference(method):
    call = Call(method=method, length=600, batch=1, heads=2)
    gradients = []
    for backend in ("eager", "sdpa"):
        torch.manual_seed(1)
        module = build_position_method(method, PositionConfig(32, 2, 2, 32, mem_len=0)).double()
        for parameter in module.parameters():
            if not parameter.any():
                parameter.data.normal_()
        q, k, v, grad = (x.double() for x in call.tensors())
        mask = FutureMask(module.bias(0, 600), 600, 600)
        out, _ = attend(q, k, v, mask, backend=backend)
        used = [p for p in module.parameters() if p.requires_grad]
        gradients.append(torch.autograd.grad(out, used, grad, allow_unused=True))
    compared = 0
    for a, b in zip(*gradients, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
            compared += 1
    assert compared > 0


def test_flex_equals_the_reference_without_compiling_anew():
    """Twelve lengths, one graph each for as many keys as queries, more keys, a single query."""
    import torch._dynamo.utils as dynamo

    torch._dynamo.reset()
    dynamo.counters.clear()
    with torch.no_grad():
        for length in (128, 200, 256, 300, 333, 384, 512, 640):
            compare_forward(Call(length=length, batch=1), "flex")
        for cached in (7, 100, 200, 300):
            compare_forward(Call(length=130, cached=cached, batch=1), "flex")
        compare_forward(Call(length=1, cached=40, batch=1), "flex")
    assert dynamo.counters["stats"]["unique_graphs"] <= 3


def test_flex_without_a_bias():
    with torch.no_grad():
        compare_forward(Call(method="none", length=200, batch=1), "flex")


def compare_forward(call: Call, backend: str):
    q, k, v, _ = call.tensors()
    found, _ = attend(q, k, v, call.mask(), backend=backend, strict=True)
    expected, _ = attend(q.double(), k.double(), v.double(), call.mask(), backend="eager")
    error = (found.double() - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE[torch.float32]


def test_weights_are_those_of_the_reference():
    call = Call(cached=5)
    q, k, v, _ = call.tensors()
    out, weights = attend(q, k, v, call.mask(), backend="skipping", need_weights=True)
    assert weights.shape == (2, 8, 300, 305)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 8, 300))
    torch.testing.assert_close(weights @ v, out, rtol=1e-5, atol=1e-5)
