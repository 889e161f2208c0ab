"""FoX compared with its formula in float64, and with ALiBi for constant gates."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call, assert_close
from conftest import random_tokens, small_model

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import GateBias, PositionConfig, alibi_slopes, build_position_method

TOLERANCE = {torch.float64: 1e-11, torch.float32: 5e-6, torch.bfloat16: 2e-2}


def formula(q, k, v, gates):
    """softmax(q·k/√D + the logarithms of the gates between the key and the query)·v, key by key."""
    rows = []
    offset = k.shape[2] - q.shape[2]
    for t in range(q.shape[2]):
        scores = [
            (q[:, :, t] * k[:, :, j]).sum(-1) / q.shape[-1] ** 0.5
            + gates[:, :, j + 1 : offset + t + 1].sum(-1)
            for j in range(offset + t + 1)
        ]
        weights = torch.stack(scores, dim=-1).softmax(-1)  # (B, H, keys)
        rows.append((weights[..., None] * v[:, :, : offset + t + 1]).sum(2))
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "auto"])
@pytest.mark.parametrize(
    "call, strength",
    [
        *((Call(heads=heads, length=23, cached=c), 1.0) for heads, c in ((1, 0), (6, 9))),
        *((Call(heads=2, length=40, dtype=dtype), 8.0) for dtype in TOLERANCE),
    ],
    ids=str,
)
def test_values_and_gradients(call, strength, backend):
    """Those of queries, keys, values and gates."""
    q, k, v, grad = call.tensors()
    generator = torch.Generator().manual_seed(3)
    open_by = torch.randn(call.batch, call.heads, k.shape[2], generator=generator)
    gates = torch.nn.functional.logsigmoid(strength * open_by.double())

    def gradients(output, inputs):
        return [x.double() for x in torch.autograd.grad(output, inputs, grad.to(output.dtype))]

    exact = [x.double().requires_grad_() for x in (q, k, v)] + [gates.clone().requires_grad_()]
    out = formula(*exact)
    expected = [out.detach(), *gradients(out, exact)]
    inputs = [x.requires_grad_() for x in (q, k, v)] + [gates.requires_grad_()]
    mask = FutureMask(GateBias(gates.cumsum(2)), q.shape[2], k.shape[2])
    ours, _ = attend(*inputs[:3], mask, backend=backend, strict=True)
    found = [ours.detach().double(), *gradients(ours, inputs)]
    assert_close(found[:4], expected[:4], TOLERANCE[call.dtype])
    error = (found[4] - expected[4]).abs().max() / expected[4].abs().max()
    assert error < 4 * TOLERANCE[call.dtype]


@pytest.mark.parametrize("heads", [2, 6])
@torch.no_grad()
def test_constant_gates_are_alibi(heads):
    fox, alibi = (small_model(name, heads=heads) for name in ("fox", "alibi"))
    fox.load_state_dict(alibi.state_dict(), strict=False)
    for layer in fox.decoder.embed_positions.layers:
        layer.weight.zero_()
        layer.bias.copy_(-torch.expm1(alibi_slopes(heads)).log())  # log σ(b) = −m
    tokens = random_tokens(2, 300)
    torch.testing.assert_close(fox(tokens)[0], alibi(tokens)[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("heads", [1, 6])
def test_gates_match_paper(heads):
    fox = build_position_method("fox", PositionConfig(8 * heads, heads, 2, 16))
    x = torch.randn(7, 3, 8 * heads)
    weight, bias = (p.double() for p in fox.layers[1].parameters())
    expected = torch.sigmoid(torch.einsum("tbc,hc->bht", x.double(), weight) + bias[:, None]).log()
    torch.testing.assert_close(fox.gate(1, x).double(), expected, rtol=1e-5, atol=1e-6)
    assert fox.gate(1, x).mean().item() == pytest.approx(-0.69, abs=0.05)
    assert fox.bfloat16().gate(1, x.bfloat16()).dtype == torch.float32
