"""ALiBi with trainable, random and given slopes."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from attention_calls import Call, assert_same_gradients
from conftest import small_model
from fairseq import checkpoint_utils
from fairseq_runs import run_train, write_corpus

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.attention.skipping import certify, typical_fraction
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import position_method
from alibi_fairseq.huggingface import conversion
from alibi_fairseq.positions import PositionConfig, alibi_slopes, build_position_method
from alibi_fairseq.positions.alibi import random_slopes, slopes_option

FLAGS = "--task language_modeling --tokens-per-sample 16 --max-tokens 64 --max-update 2"


def method(slopes: str, heads: int = 8, **options):
    config = PositionConfig(8 * heads, heads, 2, 16, alibi_slopes=slopes, **options)
    return build_position_method("alibi", config)


def slopes_of(model) -> torch.Tensor:
    with torch.no_grad():
        return model.bias(0, 16).slopes(torch.device("cpu"))


GIVEN = "3.7,1e-4,0.123456,0.9,0.5,0.01,0.3,0.07"
WITHOUT_BIAS = "0.5,0,0.25,0,0.0,0.125,-0.0,0.0625"  # in half of the heads


@pytest.mark.parametrize("cached", [0, 170])
@pytest.mark.parametrize(
    ("slopes", "backend"),
    [
        *(("trainable", name) for name in ("eager", "sdpa")),
        *((GIVEN, name) for name in ("eager", "sdpa", "fold", "skipping", "auto")),
        *((WITHOUT_BIAS, name) for name in ("eager", "sdpa", "fold", "skipping", "auto")),
    ],
)
def test_values_and_gradients_match_formula(slopes, backend, cached):
    call = Call(cached=cached)
    module = method(slopes)
    q, k, v, _ = call.tensors()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    if module.log_slopes is None:
        exact = [x.detach().double().requires_grad_() for x in inputs]
        numbers = torch.tensor([float(word) for word in slopes.split(",")]).double()
    else:
        with torch.no_grad():
            module.log_slopes += torch.linspace(-1, 1, 8)
        inputs.append(module.log_slopes)
        exact = [x.detach().double().requires_grad_() for x in inputs]
        numbers = exact[3].exp()
    distance = torch.arange(cached, call.keys)[:, None] - torch.arange(call.keys)
    scores = exact[0] @ exact[1].mT / call.width**0.5 - numbers.view(-1, 1, 1) * distance
    expected = scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ exact[2]
    mask = FutureMask(module.bias(0, call.keys), call.length, call.keys)
    out, _ = attend(q, k, v, mask, backend=backend, strict=True)
    assert (out - expected).abs().max() < 5e-6 * expected.abs().max()
    assert_same_gradients(out, expected, inputs, exact)


@pytest.mark.parametrize("scale", ["none", "4", "dynamic"])
def test_heads_without_bias_are_not_skipped(scale):
    """The certificate of the others is what it is without them."""
    module = method("0.5,0,0.25,-0.0", heads=4, alibi_scale=scale)
    call = Call(heads=4, length=500)
    q, k, _, _ = call.tensors()
    slopes = module.bias(0, 500).slopes(torch.device("cpu"))
    windows = certify(q, k, slopes).windows  # (B, H)
    assert windows[:, [1, 3]].eq(500).all()
    biased = certify(q[:, ::2], k[:, ::2], slopes[::2]).windows
    assert torch.equal(windows[:, ::2], biased)
    if scale == "none":
        assert (biased < 500).all()
    share = typical_fraction(slopes.tolist(), 500, 500)
    alone = typical_fraction(slopes[::2].tolist(), 500, 500)
    assert share == pytest.approx((1 + alone) / 2)


@pytest.mark.parametrize("name", ["eager", "sdpa"])
def test_heads_without_bias_respect_window(name):
    """With an attention window the heads without a bias weigh all visible keys by content alone."""
    call = Call(window=90)
    q, k, v, _ = call.tensors()
    bias = method(WITHOUT_BIAS).bias(0, call.keys)
    found, _ = attend(q, k, v, FutureMask(bias, 300, 300, window=90), backend=name)
    numbers = torch.tensor([float(word) for word in WITHOUT_BIAS.split(",")]).double()
    distance = torch.arange(300)[:, None] - torch.arange(300)
    scores = q.double() @ k.double().mT / 4 - numbers.view(-1, 1, 1) * distance
    hidden = (distance < 0) | (distance >= 90)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v.double()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_heads_without_bias_on_flex():
    call = Call(length=130, width=24)
    q, k, v, _ = call.tensors()
    bias = method(WITHOUT_BIAS).bias(0, call.keys)
    mask = FutureMask(bias, 130, 130)
    exact, _ = attend(q.double(), k.double(), v.double(), mask, backend="eager")
    found, _ = attend(q, k, v, mask, backend="flex", strict=True)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-5)


def test_heads_without_bias_are_not_exported():
    decoder = small_model("alibi", "--alibi-slopes", WITHOUT_BIAS).decoder
    with pytest.raises(UserInputError, match="--alibi-slopes"):
        conversion.describe(decoder, "alibi", 32)


def test_trainable_slopes_on_every_backend():
    module = method("trainable", 12)
    torch.testing.assert_close(slopes_of(module), alibi_slopes(12))
    with torch.no_grad():
        module.log_slopes += 0.3
    torch.testing.assert_close(slopes_of(module), alibi_slopes(12) * math.exp(0.3))
    halved = method("trainable", 12, alibi_scale="2")
    torch.testing.assert_close(slopes_of(halved), alibi_slopes(12) / 2)
    torch.testing.assert_close(
        halved.bias(0, 9).at(torch.tensor([5]))[:, 0], -alibi_slopes(12) * 2.5
    )


def test_random_slopes_are_exponential_with_paper_mean():
    mean = alibi_slopes(8).mean().item()
    drawn = torch.tensor([random_slopes(8, mean, seed) for seed in range(2000)]).double()
    assert drawn.mean().item() == pytest.approx(mean, rel=0.03)
    for share in (0.1, 0.5, 0.9):
        quantile = -mean * math.log(1 - share)
        assert (drawn < quantile).double().mean().item() == pytest.approx(share, abs=0.02)
    generator = random.Random(7)
    expected = [generator.expovariate(1 / mean) for _ in range(8)]
    assert slopes_of(method("random", seed=7)).tolist() == pytest.approx(expected)
    assert slopes_of(method("random", seed=7)).tolist() != slopes_of(method("random")).tolist()


def test_checkpoint_holds_slopes(tmp_path):
    data = write_corpus(tmp_path, train=300, valid=50)
    paper = alibi_slopes(2, 4)
    file = tmp_path / "slopes.txt"
    file.write_text("0.75\n0.2\n", encoding="utf-8")
    flags = ["--alibi-bias-max", "4", *FLAGS.split()]
    found = {}
    for name in (str(file), "random", "trainable"):
        folder = tmp_path / "model" / Path(name).stem
        run_train(data, folder, "--alibi-slopes", name, *flags, "--seed", "3")
        file.unlink(missing_ok=True)
        path = str(folder / "checkpoint_last.pt")
        (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([path])
        slopes = slopes_of(model.decoder.embed_positions)
        found[position_method(cfg.model)] = slopes
    assert found["alibi_given_slopes"].tolist() == pytest.approx([0.75, 0.2])
    drawn = random_slopes(2, paper.mean().item(), 3)
    assert found["alibi_random_slopes"].tolist() == pytest.approx(drawn)
    trained = found["alibi_trainable_slopes"]
    assert (trained != paper).all() and ((trained / paper - 1).abs() < 0.1).all()

    # The seed drew the slopes, so another one would be another model.
    flags += ["--alibi-slopes", "random", "--max-update", "3"]
    with pytest.raises(UserInputError, match="--seed 3 and .* --seed 4"):
        run_train(data, tmp_path / "model" / "random", *flags, "--seed", "4")


def test_option_reads_file(tmp_path):
    for text in ("0.5 0.25\n0.125", "0.5,0.25,\n0.125\n"):
        (tmp_path / "slopes").write_text(text, encoding="utf-8")
        assert slopes_option(str(tmp_path / "slopes")) == "0.5,0.25,0.125"
    for kept in ("paper", "trainable", "random", "0.5,0.25", "1e-3"):
        assert slopes_option(kept) == kept
    (tmp_path / "picture").write_bytes(b"\xff\xfe\x00")
    for bad in ("none.txt", str(tmp_path / "picture")):
        with pytest.raises(UserInputError, match="--alibi-slopes"):
            slopes_option(bad)
