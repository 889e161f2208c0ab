"""ALiBi with trainable, random, and given slopes."""

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
from alibi_fairseq.huggingface import conversion
from alibi_fairseq.positions import MethodSpec, PositionConfig, alibi_slopes, build_position_method
from alibi_fairseq.positions.alibi import random_slopes
from alibi_fairseq.positions.options import slopes_from_file

FLAGS = "--task language_modeling --tokens-per-sample 16 --max-tokens 64 --max-update 2"


def method(slopes: str, heads: int = 8, seed: int = 1, **options):
    config = PositionConfig(8 * heads, heads, 2, 16, seed=seed)
    return build_position_method("alibi", config, alibi_slopes=slopes, **options)


def slopes_of(model) -> torch.Tensor:
    with torch.no_grad():
        return model.bias(0, 16).slopes(torch.device("cpu"))


GIVEN = "3.7,1e-4,0.123456,0.9,0.5,0.01,0.3,0.07"
WITHOUT_BIAS = "0.5,0,0.25,0,0.0,0.125,-0.0,0.0625"  # in half of the heads


def numbers_of(slopes: str) -> torch.Tensor:
    numbers = [float(word) for word in slopes.split(",")]
    return torch.tensor(numbers).double()


def attention_in_float64(q, k, v, slopes, window: int = 0):
    """Compute attention from the formula; the queries are the last positions."""
    queries = q.shape[2]
    keys = k.shape[2]
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    hidden = distance < 0
    if window:
        hidden = hidden | (distance >= window)
    scores = q @ k.mT / q.shape[-1] ** 0.5 - slopes.view(-1, 1, 1) * distance
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("cached", [0, 170])
@pytest.mark.parametrize("slopes", [GIVEN, WITHOUT_BIAS])
@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "skipping", "auto"])
def test_given_slopes_match_formula(slopes, backend, cached):
    call = Call(cached=cached)
    q, k, v, _ = call.tensors()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    expected = attention_in_float64(*exact, numbers_of(slopes))
    mask = FutureMask(method(slopes).bias(0, call.keys), call.length, call.keys)
    out, _ = attend(q, k, v, mask, backend=backend, strict=True)
    assert (out - expected).abs().max() < 5e-6 * expected.abs().max()
    assert_same_gradients(out, expected, inputs, exact)


@pytest.mark.parametrize("cached", [0, 170])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_trainable_slopes_match_formula(backend, cached):
    call = Call(cached=cached)
    module = method("trainable")
    with torch.no_grad():
        module.log_slopes += torch.linspace(-1, 1, 8)
    q, k, v, _ = call.tensors()
    inputs = [x.requires_grad_() for x in (q, k, v)] + [module.log_slopes]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    exact_q, exact_k, exact_v, exact_log_slopes = exact
    expected = attention_in_float64(exact_q, exact_k, exact_v, exact_log_slopes.exp())
    mask = FutureMask(module.bias(0, call.keys), call.length, call.keys)
    out, _ = attend(q, k, v, mask, backend=backend, strict=True)
    assert (out - expected).abs().max() < 5e-6 * expected.abs().max()
    assert_same_gradients(out, expected, inputs, exact)


@pytest.mark.parametrize("slopes", ["paper", "random", GIVEN])
def test_cast_keeps_fixed_slopes(slopes):
    module = method(slopes)
    before = slopes_of(module).clone()
    assert not module.state_dict()
    assert torch.equal(slopes_of(module.bfloat16()), before)


def test_cast_rounds_logarithms_of_trainable_slopes():
    """The step of bf16 between 4 and 8 is 2^-5, and the last logarithm is -8 ln 2 = -5.5."""
    module = method("trainable")
    before = slopes_of(module)
    change = slopes_of(module.bfloat16()) / before - 1
    assert 0.01 < change.abs().max() < math.exp(2**-6) - 1


@pytest.mark.parametrize("scale", ["none", "4", "dynamic"])
def test_heads_without_bias_are_not_skipped(scale):
    """The windows of the other heads are the same as without these heads."""
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


def test_heads_without_bias_count_fully_in_typical_fraction():
    slopes = [0.5, 0.0, 0.25, -0.0]
    biased = typical_fraction([0.5, 0.25], 500, 500)
    assert typical_fraction(slopes, 500, 500) == pytest.approx((1 + biased) / 2)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_heads_without_bias_respect_window(backend):
    """In an attention window, heads without a bias weigh all visible keys by content alone."""
    call = Call(window=90)
    q, k, v, _ = call.tensors()
    bias = method(WITHOUT_BIAS).bias(0, call.keys)
    mask = FutureMask(bias, call.length, call.keys, window=90)
    output, _ = attend(q, k, v, mask, backend=backend)
    slopes = numbers_of(WITHOUT_BIAS)
    expected = attention_in_float64(q.double(), k.double(), v.double(), slopes, window=90)
    torch.testing.assert_close(output.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.ci
@torch.no_grad()
def test_heads_without_bias_on_flex():
    call = Call(length=130, width=24)
    q, k, v, _ = call.tensors()
    bias = method(WITHOUT_BIAS).bias(0, call.keys)
    mask = FutureMask(bias, 130, 130)
    exact, _ = attend(q.double(), k.double(), v.double(), mask, backend="eager")
    output, _ = attend(q, k, v, mask, backend="flex", strict=True)
    torch.testing.assert_close(output.double(), exact, rtol=0, atol=1e-5)


def test_heads_without_bias_are_not_exported():
    decoder = small_model("alibi", "--alibi-slopes", WITHOUT_BIAS).decoder
    with pytest.raises(UserInputError, match="--alibi-slopes"):
        conversion.describe_decoder(decoder, "alibi", 32)


def test_trainable_slopes_start_at_paper_slopes():
    torch.testing.assert_close(slopes_of(method("trainable", 12)), alibi_slopes(12))


def test_trainable_slopes_are_exponentials_of_parameters():
    module = method("trainable", 12)
    with torch.no_grad():
        module.log_slopes += 0.3
    torch.testing.assert_close(slopes_of(module), alibi_slopes(12) * math.exp(0.3))


def test_interpolation_divides_trainable_slopes():
    halved = method("trainable", 12, alibi_scale="2")
    torch.testing.assert_close(slopes_of(halved), alibi_slopes(12) / 2)
    bias = halved.bias(0, 9).at(torch.tensor([5]))[:, 0]
    torch.testing.assert_close(bias, -alibi_slopes(12) / 2 * 5)


def test_random_slopes_are_exponential_with_paper_mean():
    mean = alibi_slopes(8).mean().item()
    drawn = torch.tensor([random_slopes(8, mean, seed) for seed in range(2000)]).double()
    assert drawn.mean().item() == pytest.approx(mean, rel=0.03)
    for probability in (0.1, 0.5, 0.9):
        quantile = -mean * math.log(1 - probability)
        fraction_below = (drawn < quantile).double().mean().item()
        assert fraction_below == pytest.approx(probability, abs=0.02)


def test_random_slopes_depend_on_seed():
    generator = random.Random(7)
    mean = alibi_slopes(8).mean().item()
    expected = [generator.expovariate(1 / mean) for _ in range(8)]
    drawn = slopes_of(method("random", seed=7)).tolist()
    assert drawn == pytest.approx(expected)
    assert slopes_of(method("random")).tolist() != drawn


def train(folder: Path, slopes: str, *flags: str) -> Path:
    """Train a model with two heads and ``--alibi-bias-max 4``, and return its checkpoint."""
    if not (folder / "dict.txt").exists():
        write_corpus(folder, train=300, valid=50)
    command = ["--alibi-bias-max", "4", *FLAGS.split(), "--alibi-slopes", slopes, *flags]
    run_train(folder, folder / "model", *command)
    return folder / "model" / "checkpoint_last.pt"


def load(path: Path):
    """Return the slopes of a checkpoint, and the name of its method in tables."""
    (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    return slopes_of(model.decoder.embed_positions), MethodSpec.from_options(cfg.model).label


def test_checkpoint_holds_given_slopes(tmp_path):
    file = tmp_path / "slopes.txt"
    file.write_text("0.75\n0.2\n", encoding="utf-8")
    checkpoint = train(tmp_path, str(file))
    file.unlink()
    slopes, name = load(checkpoint)
    assert slopes.tolist() == pytest.approx([0.75, 0.2])
    assert name == "ALiBi, other slopes"


def test_checkpoint_holds_random_slopes(tmp_path):
    slopes, name = load(train(tmp_path, "random", "--seed", "3"))
    drawn = random_slopes(2, alibi_slopes(2, 4).mean().item(), 3)
    assert slopes.tolist() == pytest.approx(drawn)
    assert name == "ALiBi, random slopes"


def test_training_with_random_slopes_rejects_another_seed(tmp_path):
    """The seed determines the slopes, so another seed would mean another model."""
    train(tmp_path, "random", "--seed", "3")
    with pytest.raises(UserInputError, match="--seed 3 and .* --seed 4"):
        train(tmp_path, "random", "--seed", "4", "--max-update", "3")


def test_checkpoint_holds_trained_slopes(tmp_path):
    slopes, name = load(train(tmp_path, "trainable"))
    paper = alibi_slopes(2, 4)
    assert (slopes != paper).all()
    assert ((slopes / paper - 1).abs() < 0.1).all()
    assert name == "ALiBi, trainable slopes"


@pytest.mark.parametrize("text", ["0.5 0.25\n0.125", "0.5,0.25,\n0.125\n"])
def test_option_reads_file(tmp_path, text):
    (tmp_path / "slopes").write_text(text, encoding="utf-8")
    assert slopes_from_file(str(tmp_path / "slopes")) == "0.5,0.25,0.125"


@pytest.mark.parametrize("text", ["paper", "trainable", "random", "0.5,0.25", "1e-3"])
def test_option_keeps_names_and_numbers(text):
    assert slopes_from_file(text) == text
