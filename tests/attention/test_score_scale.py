"""``--score-scaling`` compared with its formula in float64."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import random_tokens, small_model
from trained import train

from alibi_fairseq.attention import FutureMask, ScoreScale, attend
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.huggingface import conversion
from alibi_fairseq.positions import MethodSpec

TRAIN_LENGTH = 9
QUERIES = 19
KEYS = 30
HEAD_DIM = 8


def attention_in_float64(kind, q, k, v, factors):
    """Compute attention query by query, with scores scaled by the formula of ``kind``."""
    outputs = []
    for t in range(QUERIES):
        visible = KEYS - QUERIES + t + 1
        if kind == "ssmax":
            scale = (factors[0] * math.log(visible))[:, None]
        else:
            scale = max(1.0, math.log(visible) / math.log(TRAIN_LENGTH))
        products = (q[:, :, t, None] * k[:, :, :visible]).sum(-1)
        weights = (scale * products / HEAD_DIM**0.5).softmax(-1)  # (B, H, visible keys)
        outputs.append((weights[..., None] * v[:, :, :visible]).sum(2))
    return torch.stack(outputs, dim=2)


@pytest.mark.parametrize("kind", ["logn", "ssmax"])
@pytest.mark.parametrize("heads", [1, 6, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients_match_formula(kind, heads, dtype):
    score_scale = ScoreScale(kind, heads, num_layers=2, train_length=TRAIN_LENGTH)
    q = torch.randn(2, heads, QUERIES, HEAD_DIM).to(dtype).requires_grad_()
    k = torch.randn(2, heads, KEYS, HEAD_DIM).to(dtype)
    v = torch.randn(2, heads, KEYS, HEAD_DIM).to(dtype)
    output_gradient = torch.randn(2, heads, QUERIES, HEAD_DIM).to(dtype)
    factors = [*score_scale.parameters()][1:]  # of the second layer; logn has none
    mask = FutureMask(None, QUERIES, KEYS)
    output, _ = attend(score_scale(1, q, mask), k, v, mask)
    gradients = torch.autograd.grad(output, [q, *factors], output_gradient)

    exact_q, *exact_factors = [x.detach().double().requires_grad_() for x in (q, *factors)]
    expected = attention_in_float64(kind, exact_q, k.double(), v.double(), exact_factors)
    expected_gradients = torch.autograd.grad(
        expected, [exact_q, *exact_factors], output_gradient.double()
    )

    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    assert (output - expected).abs().max() < tolerance * expected.abs().max()
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        assert (
            gradient - expected_gradient
        ).abs().max() < tolerance * expected_gradient.abs().max()


@pytest.mark.parametrize("length", [64, 1024])
def test_initial_ssmax_scales_average_to_one(length):
    factors = ScoreScale("ssmax", 8, 2, length).layers[0]["s"]
    visible = torch.arange(1, length + 1)
    scales = factors * visible[:, None].log()
    assert scales.mean().item() == pytest.approx(1)


@pytest.mark.parametrize(("window", "memory_length"), [(8, 0), (0, 64), (80, 64), (500, 64)])
def test_initial_ssmax_scales_average_to_one_with_window_and_memory(window, memory_length):
    length = 64
    windows = [0, window]
    layer = ScoreScale("ssmax", 8, 2, length, windows, memory_length).layers[1]
    visible = torch.arange(memory_length + 1, memory_length + length + 1)
    if window:
        visible = visible.clamp(max=window)
    scales = layer["s"] * visible[:, None].log()
    assert scales.mean().item() == pytest.approx(1)


def test_initial_ssmax_factor_matches_paper():
    factors = ScoreScale("ssmax", 8, 2, 1024).layers[0]["s"]
    assert factors[0].item() == pytest.approx(0.168, abs=5e-4)


@torch.no_grad()
def test_logn_changes_nothing_up_to_training_length():
    plain = small_model("rotary")
    logn = small_model("rotary", "--score-scaling", "logn")
    assert plain.state_dict().keys() == logn.state_dict().keys()
    logn.load_state_dict(plain.state_dict())
    tokens = random_tokens(2, 100)
    scaled = logn(tokens)[0]
    unscaled = plain(tokens)[0]
    assert torch.equal(scaled[:, :32], unscaled[:, :32])
    assert (scaled - unscaled)[:, 60:].abs().max() > 1e-3


@torch.no_grad()
def test_logn_changes_nothing_with_memory_of_training():
    flags = ["--mem-len", "32"]
    plain = small_model("transformer_xl", *flags, sequential=True)
    logn = small_model("transformer_xl", *flags, "--score-scaling", "logn", sequential=True)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    logn.load_state_dict(plain.state_dict())
    state = plain.decoder(random_tokens(2, 32))[1]["state"]
    tokens = random_tokens(2, 33)
    unscaled = plain.decoder(tokens, state=state)[0]
    scaled = logn.decoder(tokens, state=state)[0]
    assert torch.equal(scaled[:, :32], unscaled[:, :32])
    assert (scaled - unscaled)[:, 32].abs().max() > 1e-6


@pytest.mark.ci
def test_overrides_keep_the_most_keys_of_training(trained, tmp_path):
    flags = trained.FLAGS["transformer-xl"] + " --attention-window 6,0"
    checkpoint = train(trained.data, tmp_path, flags)
    overrides = {"score_scaling": "logn", "attention_window": "0", "mem_len": 500}
    decoder = load_checkpoint(checkpoint, trained.data, overrides=overrides).decoder
    assert decoder.attention_windows == [0, 0]
    assert decoder.embed_positions.memory_length == 500
    assert decoder.score_scale.log_lengths == [math.log(6), math.log(24 + 32)]


def test_hidden_keys_do_not_count():
    """Two documents of 10 and 20 tokens, and a window of 6 keys."""
    starts = torch.tensor([[0] * 10 + [10] * 20])
    mask = FutureMask(None, 30, 30, window=6, document_start=starts)
    score_scale = ScoreScale("ssmax", 1, 1, 16)
    scaled = score_scale(0, torch.ones(1, 1, 30, 4), mask)[0, 0, :, 0]
    visible = (scaled / score_scale.layers[0]["s"]).exp()
    first = [1, 2, 3, 4, 5, *[6] * 5]
    second = [1, 2, 3, 4, 5, *[6] * 15]
    expected = torch.tensor([*first, *second], dtype=torch.float32)
    torch.testing.assert_close(visible, expected)


def test_results_name_score_scaling():
    model = small_model("alibi", "--score-scaling", "logn")
    assert MethodSpec.from_options(model.decoder.args).label == "ALiBi, logn"


def test_export_rejects_score_scaling():
    model = small_model("alibi", "--score-scaling", "logn")
    with pytest.raises(UserInputError, match="--score-scaling"):
        conversion.describe_decoder(model.decoder, "alibi", 16)
