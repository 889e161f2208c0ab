"""FoX compared with its formula in float64, and with ALiBi for constant gates."""

from __future__ import annotations

import math

import pytest
import torch
from attention_calls import Call, assert_close
from conftest import random_tokens, small_model

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import GateBias, PositionConfig, alibi_slopes, build_position_method

TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-6, torch.bfloat16: 2e-2}
CALLS = [
    (Call(heads=1, length=23), 1.0),
    (Call(heads=6, length=23, cached=9), 1.0),
    (Call(heads=2, length=40, dtype=torch.float64), 8.0),
    (Call(heads=2, length=40, dtype=torch.float32), 8.0),
    (Call(heads=2, length=40, dtype=torch.bfloat16), 8.0),
]


def attention_with_gates(q, k, v, log_gates):
    """Compute attention from the formula, key by key.

    The bias of a key is the sum of the log gates after it, up to and including the query's.
    """
    outputs = []
    cached = k.shape[2] - q.shape[2]
    for t in range(q.shape[2]):
        visible = cached + t + 1
        scores = []
        for j in range(visible):
            product = (q[:, :, t] * k[:, :, j]).sum(-1) / q.shape[-1] ** 0.5
            bias = log_gates[:, :, j + 1 : visible].sum(-1)
            scores.append(product + bias)
        weights = torch.stack(scores, dim=-1).softmax(-1)  # (B, H, visible keys)
        outputs.append((weights[..., None] * v[:, :, :visible]).sum(2))
    return torch.stack(outputs, dim=2)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "auto"])
@pytest.mark.parametrize(("call", "strength"), CALLS, ids=str)
def test_values_and_gradients_match_formula(call, strength, backend):
    """Compare the output and the gradients of queries, keys, values, and gates."""
    q, k, v, output_gradient = call.tensors()
    generator = torch.Generator().manual_seed(3)
    gate_scores = torch.randn(call.batch, call.heads, k.shape[2], generator=generator)
    log_gates = torch.nn.functional.logsigmoid(strength * gate_scores.double())

    exact_inputs = [x.double().requires_grad_() for x in (q, k, v)]
    exact_inputs.append(log_gates.clone().requires_grad_())
    expected = attention_with_gates(*exact_inputs)
    expected_gradients = torch.autograd.grad(expected, exact_inputs, output_gradient.double())

    inputs = [x.requires_grad_() for x in (q, k, v, log_gates)]
    mask = FutureMask(GateBias(log_gates.cumsum(2)), q.shape[2], k.shape[2])
    output, _ = attend(q, k, v, mask, backend=backend, strict=True)
    gradients = torch.autograd.grad(output, inputs, output_gradient)

    tolerance = TOLERANCE[call.dtype]
    *qkv_gradients, gate_gradient = gradients
    *expected_qkv_gradients, expected_gate_gradient = expected_gradients
    results = [x.double() for x in (output, *qkv_gradients)]
    assert_close(results, [expected, *expected_qkv_gradients], tolerance)
    error = (gate_gradient - expected_gate_gradient).abs().max()
    assert error < 4 * tolerance * expected_gate_gradient.abs().max()


@pytest.mark.parametrize("heads", [2, 6])
@torch.no_grad()
def test_constant_gates_equal_alibi(heads):
    fox = small_model("fox", heads=heads)
    alibi = small_model("alibi", heads=heads)
    fox.load_state_dict(alibi.state_dict(), strict=False)
    for layer in fox.decoder.embed_positions.layers:
        layer.weight.zero_()
        layer.bias.copy_(-torch.expm1(alibi_slopes(heads)).log())  # log σ(b) = −m
    tokens = random_tokens(2, 300)
    torch.testing.assert_close(fox(tokens)[0], alibi(tokens)[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("heads", [1, 6])
def test_log_gates_match_paper(heads):
    fox = fox_method(heads)
    x = torch.randn(7, 3, 8 * heads)  # (T, B, C)
    weight = fox.layers[1].weight.double()
    bias = fox.layers[1].bias.double()
    scores = torch.einsum("tbc,hc->bht", x.double(), weight) + bias[:, None]
    expected = torch.sigmoid(scores).log()
    torch.testing.assert_close(fox.log_gates(1, x).double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("heads", [1, 6])
def test_gates_start_half_open(heads):
    log_gates = fox_method(heads).log_gates(1, torch.randn(7, 3, 8 * heads))
    assert log_gates.mean().item() == pytest.approx(math.log(0.5), abs=0.05)


def test_log_gates_are_fp32_in_half_precision():
    fox = fox_method(heads=6).bfloat16()
    log_gates = fox.log_gates(1, torch.randn(7, 3, 48).bfloat16())
    assert log_gates.dtype == torch.float32


def fox_method(heads: int):
    return build_position_method("fox", PositionConfig(8 * heads, heads, 2, 16))
