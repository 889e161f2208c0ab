"""ALiBi with trainable, random and given slopes."""

from __future__ import annotations

import math
import random

import pytest
import torch
from attention_calls import Call
from conftest import random_tokens, small_model
from fairseq import checkpoint_utils
from fairseq_runs import run_train, write_corpus

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.checkpoint import position_method
from alibi_fairseq.positions import PositionConfig, alibi_slopes, build_position_method
from alibi_fairseq.positions.alibi import random_slopes, slopes_option

FLAGS = [
    "--task",
    "language_modeling",
    "--tokens-per-sample",
    "16",
    "--max-tokens",
    "64",
    "--max-update",
    "2",
]


def method(slopes: str, heads: int = 8, **options):
    config = PositionConfig(8 * heads, heads, 2, 16, alibi_slopes=slopes, **options)
    return build_position_method("alibi", config)


def slopes_of(model) -> torch.Tensor:
    with torch.no_grad():
        return model.bias(0, 16).slopes(torch.device("cpu"))


def naive(q, k, v, slopes):
    """softmax(q·k/√D − m·(i − j))·v with every matrix written out."""
    queries, keys = q.shape[2], k.shape[2]
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
    scores = q @ k.mT / q.shape[3] ** 0.5 - slopes.view(-1, 1, 1) * distance
    return scores.masked_fill(distance < 0, -torch.inf).softmax(-1) @ v


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("cached", [0, 170])
def test_trainable_slopes_have_the_gradient_of_a_naive_reference(backend, cached):
    call = Call(cached=cached)
    module = method("trainable")
    with torch.no_grad():
        module.log_slopes += torch.linspace(-1, 1, 8)
    q, k, v, grad = call.tensors()
    bias = module.bias(0, 300 + cached)
    if not BACKENDS[backend].supports(bias) or BACKENDS[backend].unsupported_reason(
        q, k, v, FutureMask(bias, 300, 300 + cached), 0.0
    ):
        return  # says itself that it cannot, and another one is used
    inputs = [q, k, v]
    for tensor in inputs:
        tensor.requires_grad_()
    out, _ = attend(*inputs, FutureMask(bias, 300, 300 + cached), backend=backend, strict=True)
    found = torch.autograd.grad(out, [*inputs, module.log_slopes], grad)

    exact = [x.detach().double().requires_grad_() for x in (*inputs, module.log_slopes)]
    expected = naive(*exact[:3], exact[3].exp())
    assert (out - expected).abs().max() < 5e-6 * expected.abs().max()
    for one, other in zip(found, torch.autograd.grad(expected, exact, grad.double())):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def test_backends_that_train_slopes_are_the_general_ones():
    bias = method("trainable").bias(0, 16)
    assert [name for name, backend in BACKENDS.items() if backend.supports(bias)] == [
        *("eager", "sdpa", "flex")
    ]
    q, k, v, _ = Call().tensors()
    mask = FutureMask(bias, 300, 300)
    assert "does not train learned biases" in BACKENDS["flex"].unsupported_reason(
        q, k, v, mask, 0.0
    )


@pytest.mark.parametrize("backend", ["eager", "sdpa", "fold", "skipping"])
@pytest.mark.parametrize("cached", [0, 170])
def test_given_slopes_equal_a_naive_reference(backend, cached):
    slopes = [3.7, 1e-4, 0.123456, 0.9, 0.5, 0.01, 0.3, 0.07]
    module, call = method(",".join(map(str, slopes))), Call(cached=cached)
    q, k, v, grad = call.tensors()
    for tensor in (q, k, v):
        tensor.requires_grad_()
    mask = FutureMask(module.bias(0, 300 + cached), 300, 300 + cached)
    out, _ = attend(q, k, v, mask, backend=backend, strict=True)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    expected = naive(*exact, torch.tensor(slopes, dtype=torch.float64))
    assert (out - expected).abs().max() < 5e-6 * expected.abs().max()
    pairs = zip(
        torch.autograd.grad(out, (q, k, v), grad),
        torch.autograd.grad(expected, exact, grad.double()),
    )
    for one, other in pairs:
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def test_trainable_slopes_start_at_the_papers_and_serve_every_backend_once_trained():
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


def test_a_model_with_trainable_slopes_computes_the_same_with_and_without_a_gradient():
    model = small_model("alibi", "--alibi-slopes", "trainable")
    with torch.no_grad():
        model.decoder.embed_positions.log_slopes += torch.randn(8) / 2
    tokens = random_tokens(2, 40)
    with_gradient = model(tokens)[0]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[0], with_gradient, rtol=0, atol=1e-5)


def test_random_slopes_are_exponential_with_the_mean_of_the_papers():
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


def test_a_checkpoint_holds_its_slopes(tmp_path):
    data = write_corpus(tmp_path, train=300, valid=50)
    file = tmp_path / "slopes.txt"
    file.write_text("0.75\n0.2\n", encoding="utf-8")
    for slopes, name in ((str(file), "given"), ("random", "random"), ("trainable", "trainable")):
        run_train(data, tmp_path / name, "--alibi-slopes", slopes, *FLAGS, "--seed", "3")
    file.unlink()

    def load(name: str):
        path = str(tmp_path / name / "checkpoint_last.pt")
        (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([path])
        return slopes_of(model.decoder.embed_positions), position_method(cfg.model)

    found, called = load("given")
    assert found.tolist() == pytest.approx([0.75, 0.2]) and called == "alibi_given_slopes"
    found, called = load("random")
    drawn = random_slopes(2, alibi_slopes(2).mean().item(), 3)
    assert found.tolist() == pytest.approx(drawn) and called == "alibi_random_slopes"
    found, called = load("trainable")
    assert called == "alibi_trainable_slopes"
    assert (found != alibi_slopes(2)).all() and ((found / alibi_slopes(2) - 1).abs() < 0.1).all()


def test_random_slopes_are_not_resumed_with_another_seed(tmp_path):
    data = write_corpus(tmp_path, train=300, valid=50)
    flags = ["--alibi-slopes", "random", *FLAGS]
    run_train(data, tmp_path / "model", *flags, "--seed", "3")
    with pytest.raises(BadInput, match="random --seed 3 and .* --alibi-slopes random --seed 4"):
        run_train(data, tmp_path / "model", *flags, "--seed", "4", "--max-update", "3")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0.5,0.25", "gives 2 slopes, but the model has 8 heads"),
        ("0.5,0.25,0,1,1,1,1,1", "0.0 is not a positive number"),
        ("0.5,nan,1,1,1,1,1,1", "nan is not a positive number"),
        ("papier", "must be paper, trainable, random or numbers, not 'papier'"),
    ],
)
def test_bad_slopes_are_refused(value, message):
    with pytest.raises(BadInput, match=message):
        method(value)


def test_the_option_reads_a_file(tmp_path):
    for text in ("0.5 0.25\n0.125", "0.5,0.25,\n0.125\n"):
        (tmp_path / "slopes").write_text(text, encoding="utf-8")
        assert slopes_option(str(tmp_path / "slopes")) == "0.5,0.25,0.125"
    for kept in ("paper", "trainable", "random", "0.5,0.25", "1e-3"):
        assert slopes_option(kept) == kept
    with pytest.raises(BadInput, match="'none.txt' cannot be read .No such file"):
        slopes_option("none.txt")
    (tmp_path / "picture").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="it is not text"):
        slopes_option(str(tmp_path / "picture"))


def test_slopes_belong_to_alibi():
    config = PositionConfig(64, 8, 2, 16, alibi_slopes="random")
    with pytest.raises(BadInput, match="--alibi-slopes applies only to position method alibi"):
        build_position_method("rotary", config)
