"""Tests that need a GPU. ``scripts/gpu_check.sh --rehearse`` runs them on the CPU."""

from __future__ import annotations

import math
import os
from importlib.util import find_spec

import pytest
import torch
from attention_calls import Call, assert_close, reference, results, supporting
from conftest import random_tokens, small_model
from fairseq_runs import run_eval_lm, run_train, write_corpus

from alibi_fairseq.attention import BACKENDS
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.measurement import run_sweep
from alibi_fairseq.plugin.linear_cross_entropy import linear_cross_entropy
from alibi_fairseq.positions import METHODS
from alibi_fairseq.results.file import load_training

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
#: Device flag of fairseq's commands, which use a GPU by default.
CPU_FLAG = [] if ON_GPU else ["--cpu"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not ON_GPU and "ALIBI_GPU_REHEARSAL" not in os.environ, reason="needs a GPU"
    ),
]
#: Largest difference from float64 on the CPU, relative to the largest value. In half precision, it
#: allows for one rounding of a bias at a distance of a few hundred tokens.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}


@pytest.fixture(autouse=True)
def _fail_if_not_compiled():
    """Make it an error that PyTorch gives up compiling, instead of computing more slowly."""
    import torch._dynamo

    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        yield


CALLS = []
for name in sorted(METHODS):
    for dtype in TOLERANCE:
        CALLS.append(Call(name, dtype=dtype, width=64, device=DEVICE))
for name in ("alibi", "none", "t5"):
    # Masks and lengths that decide which options a kernel may have (flex_kernel.kernel_options).
    for shape in (
        {"documents": True},
        {"window": 100},
        {"window": 100, "documents": True},
        {"length": 384, "window": 200},
        {"length": 384, "documents": True},
        {"length": 384},
        {"cached": 70},
        {"cached": 127},
        {"cached": 128, "length": 256},
        {"cached": 128, "length": 256, "window": 130},
        {"cached": 70, "window": 100},
        {"length": 1, "cached": 130},
    ):
        CALLS.append(Call(name, width=64, dtype=torch.bfloat16, device=DEVICE, **shape))
for name in ("alibi", "sandwich"):
    for dtype in (torch.bfloat16, torch.float16):
        CALLS.append(Call(name, width=128, length=384, dtype=dtype, device=DEVICE))


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_attention_matches_reference(call, backend):
    """Compare values and gradients of every method on every backend that supports it.

    CoPE is compared away from whole counts, where its gradient jumps (``WHOLE_COUNT_MARGIN`` in
    tests/attention_calls.py).
    """
    if backend not in supporting(call):
        pytest.skip(f"{backend} does not support this call here")
    assert_close(results(call, backend), reference(call), TOLERANCE[call.dtype])


DROPOUT = 0.1
DRAWS = 256
DROPOUT_CALL = Call(heads=2, length=256, width=128, dtype=torch.float16, device=DEVICE)


@pytest.mark.parametrize("backend", list(BACKENDS))
@torch.no_grad()
def test_mean_over_attention_dropout_matches_reference(backend):
    """Compare the mean of many draws at the paper's head size; their deviation is at most v / 3."""
    if backend not in supporting(DROPOUT_CALL, DROPOUT):
        pytest.skip(f"{backend} does not support dropout")
    q, k, v, _ = DROPOUT_CALL.tensors()
    mask = DROPOUT_CALL.mask()
    attend = BACKENDS[backend].attend
    total = torch.zeros(v.shape, dtype=torch.float32, device=DEVICE)
    kept = []
    for _ in range(DRAWS):
        total += attend(q, k, v, mask, DROPOUT).float()
        kept.append(attend(q, k, torch.ones_like(v), mask, DROPOUT).float().mean())
    expected = reference(DROPOUT_CALL)[0]
    error = (total.cpu().double() / DRAWS - expected).abs().max()
    assert error < 6 * v.abs().max().item() / 3 / DRAWS**0.5
    assert torch.stack(kept).std() > 0  # something is dropped
    assert torch.stack(kept).mean().item() == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("method", sorted(METHODS))
@torch.no_grad()
def test_cached_decoding_matches_full_pass(method):
    model = small_model(method).to(DEVICE)
    tokens = random_tokens(2, 24).to(DEVICE)
    state: dict = {}
    steps = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in range(1, 25)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(tokens)[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_chunked_cross_entropy_matches_float64(dtype):
    targets = torch.randint(5000, (700,))
    x = torch.randn(700, 64, dtype=dtype)
    weight = torch.randn(5000, 64, dtype=dtype) / 8
    inputs = [tensor.to(DEVICE).requires_grad_() for tensor in (x, weight)]
    loss = linear_cross_entropy(targets.to(DEVICE), tuple(inputs))
    computed = [loss.detach(), *torch.autograd.grad(loss, inputs)]

    exact_x = x.double().requires_grad_()
    exact_weight = weight.double().requires_grad_()
    scores = exact_x @ exact_weight.t()
    exact_loss = torch.nn.functional.cross_entropy(scores, targets, reduction="sum")
    exact_gradients = torch.autograd.grad(exact_loss, [exact_x, exact_weight])
    exact = [exact_loss.detach(), *exact_gradients]
    for result, expected in zip(computed, exact, strict=True):
        error = (result.cpu().double() - expected).abs().max() / expected.abs().max()
        assert error < TOLERANCE[dtype]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=400)


def train(data, folder, *flags, updates=24):
    """Train for some updates and return the checkpoint."""
    command = ["--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "256"]
    command += ["--max-update", str(updates), "--lr", "0.01", "--ddp-backend", "legacy_ddp"]
    return run_train(data, folder, *command, *flags, device=" ".join(CPU_FLAG))


ADAPTIVE = (
    *("--adaptive-softmax-cutoff", "6,14", "--no-share-decoder-input-output-embed"),
    *("--criterion", "chunked_adaptive_loss"),
)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--fp16",),
        ("--memory-efficient-fp16",),
        ("--bf16",),
        ("--amp",),
        ("--criterion", "chunked_cross_entropy"),
        ("--criterion", "chunked_cross_entropy", "--fp16"),
        ADAPTIVE,
        (*ADAPTIVE, "--bf16"),
        (*ADAPTIVE, "--fp16"),
        ("--optimizer", "fused_adam", "--fp16"),
        ("--optimizer", "fused_adam", "--bf16"),
        ("--checkpoint-activations",),
        ("--checkpoint-activations", "--decoder-embed-dim", "32"),  # a head size of flex
        ("--num-workers", "2"),
        ("--ddp-backend", "fully_sharded", "--fp16"),
    ],
    ids=" ".join,
)
def test_training_learns(data, tmp_path, flags):
    if not ON_GPU and {"--fp16", "--amp"} & set(flags):
        pytest.skip("fairseq trains in fp16 on a GPU only")
    if "fully_sharded" in flags and find_spec("fairscale") is None:
        pytest.skip("fairscale is not installed")
    state = train(data, tmp_path, *flags)["extra_state"]
    assert state["val_loss"] < 4  # bits; a guess among 24 words has 4.6


#: The paper's precision, criterion, optimizer, attention dropout, and head size.
PAPER = (
    *("--fp16" if ON_GPU else "--memory-efficient-fp16", "--attention-dropout", "0.1"),
    *("--criterion", "adaptive_loss", "--no-share-decoder-input-output-embed"),
    *("--adaptive-input", "--adaptive-input-cutoff", "6,14", "--tie-adaptive-weights"),
    *("--adaptive-softmax-cutoff", "6,14"),
    *("--decoder-embed-dim", "128", "--decoder-attention-heads", "1"),
    *("--optimizer", "nag", "--clip-norm", "0.1", "--validate-interval-updates", "2"),
    *("--tokens-per-sample", "128", "--max-tokens", "2048"),
)


@pytest.mark.parametrize("tokens", [2048, 24576])
def test_training_as_in_the_paper(tmp_path, tokens):
    """Validate with a finite loss, and with more nats per batch than fp16 can represent."""
    (tmp_path / "data").mkdir()
    corpus = write_corpus(tmp_path / "data", train=40_000, valid=24_576)
    flags = (*PAPER, "--max-tokens-valid", str(tokens))
    train(corpus, tmp_path / "run", *flags, updates=2)
    resumed = train(corpus, tmp_path / "run", *flags, updates=4)
    assert resumed["optimizer_history"][-1]["num_updates"] == 4
    assert all(weight.isfinite().all() for weight in resumed["model"].values())
    records = load_training(tmp_path / "run").results
    assert [record.updates for record in records] == [2, 4]
    losses = [record.values.loss_bits for record in records]
    if tokens == 2048:
        assert losses[1] < losses[0]
    else:
        assert losses == [None, None]
        assert resumed["extra_state"]["val_loss"] == math.inf


@pytest.mark.parametrize("layers", ["2", "16"])
def test_compiled_layers_train(data, tmp_path, layers):
    flags = ("--compile-layers", "--decoder-layers", layers)
    state = train(data, tmp_path, *flags, updates=4)["extra_state"]
    assert math.isfinite(state["val_loss"])


def test_resumed_run_matches_uninterrupted_run(data, tmp_path):
    """Train a model with memory, whose states are part of the checkpoint."""
    flags = ["--task", "segment_language_modeling", "--position-method", "transformer_xl"]
    flags += ["--mem-len", "12", "--tokens-per-sample", "8", "--batch-size", "4"]

    def train_until(update: int, folder: str) -> dict:
        limit = ["--max-update", str(update)]
        return run_train(data, tmp_path / folder, *flags, *limit, device=" ".join(CPU_FLAG))

    uninterrupted = train_until(17, "uninterrupted")
    train_until(10, "resumed")
    resumed = train_until(17, "resumed")
    for name, tensor in uninterrupted["model"].items():
        torch.testing.assert_close(resumed["model"][name], tensor, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize("flags", [(), ADAPTIVE], ids=["softmax", "adaptive softmax"])
def test_evaluation_matches_fairseq_eval_lm(data, tmp_path, flags):
    train(data, tmp_path, *flags)
    checkpoint = tmp_path / "checkpoint_last.pt"
    config = SweepConfig(lengths=(16, 48))
    for record in run_sweep(data, [checkpoint], config, tmp_path / "results.json"):
        options = ["--gen-subset", "valid", "--tokens-per-sample", str(record["length"])]
        expected = run_eval_lm(data, checkpoint, *options, device=" ".join(CPU_FLAG))["loss"]
        assert record["loss_bits"] == pytest.approx(float(expected), abs=1e-3)
