"""``--score-scaling`` compared with its formula in float64."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.attention import FutureMask, ScoreScale, attend
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import position_method
from alibi_fairseq.huggingface import conversion


@pytest.mark.parametrize("kind", ["logn", "ssmax"])
@pytest.mark.parametrize("heads", [1, 6, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients(kind, heads, dtype):
    scale = ScoreScale(kind, heads, layers=2, train_length=9)
    q, k, v, grad = torch.randn(4, 2, heads, 30, 8).to(dtype).double()
    queries = q[:, :, 11:]
    factors = [*scale.parameters()][1:]
    inputs = [queries.to(dtype).requires_grad_(), *factors]
    mask = FutureMask(None, 19, 30)
    ours, _ = attend(scale(1, inputs[0], mask), k.to(dtype), v.to(dtype), mask)
    found = torch.autograd.grad(ours, inputs, grad[:, :, 11:].to(dtype))

    exact = [x.detach().double().requires_grad_() for x in inputs]
    rows = []
    for t in range(19):
        n = 12 + t
        factor = torch.tensor(max(1.0, math.log(n) / math.log(9)))
        if kind == "ssmax":
            factor = (exact[1] * math.log(n))[:, None]
        scores = (exact[0][:, :, t, None] * k[:, :, :n]).sum(-1) * factor / 8**0.5
        rows.append((scores.softmax(-1)[..., None] * v[:, :, :n]).sum(2))
    expected = torch.stack(rows, dim=2)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    for a, b in zip(
        (ours, *found), (expected, *torch.autograd.grad(expected, exact, grad[:, :, 11:]))
    ):
        assert (a.double() - b).abs().max() < tolerance * b.abs().max()


@pytest.mark.parametrize("length", [64, 1024])
def test_initial_factors_average_to_one(length):
    factors = ScoreScale("ssmax", 8, 2, length).layers[0]["s"]
    assert (factors * torch.arange(1, length + 1)[:, None].log()).mean().item() == pytest.approx(1)
    if length == 1024:
        assert factors[0].item() == pytest.approx(0.168, abs=5e-4)  # as published


@torch.no_grad()
def test_logn_changes_nothing_up_to_training_length():
    plain = small_model("rotary")
    logn = small_model("rotary", "--score-scaling", "logn")
    assert plain.state_dict().keys() == logn.state_dict().keys()
    logn.load_state_dict(plain.state_dict())
    tokens = random_tokens(2, 100)
    torch.testing.assert_close(logn(tokens)[0][:, :32], plain(tokens)[0][:, :32], rtol=0, atol=0)
    assert (logn(tokens)[0] - plain(tokens)[0])[:, 60:].abs().max() > 1e-3


def test_hidden_keys_do_not_count():
    starts = torch.tensor([[0] * 10 + [10] * 20])
    q = torch.ones(1, 1, 30, 4)
    scale = ScoreScale("ssmax", 1, 1, 16)
    seen = scale(0, q, FutureMask(None, 30, 30, None, 6, starts))[0, 0, :, 0] / scale.layers[0]["s"]
    expected = [min(6, n) for n in (*range(1, 11), *range(1, 21))]
    torch.testing.assert_close(seen.exp(), torch.tensor(expected, dtype=torch.float32))


def test_scaling_has_separate_name_and_no_export():
    model = small_model("alibi", "--score-scaling", "logn")
    assert position_method(model.decoder.args) == "alibi_logn"
    with pytest.raises(UserInputError, match="--score-scaling"):
        conversion.describe(model.decoder, "alibi", 16)
