"""What only a GPU can show. ``scripts/gpu_check.sh --rehearse`` runs the same tests on the CPU."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch
from attention_calls import Call, assert_close, reference, results, supporting
from conftest import random_tokens, small_model
from fairseq_runs import run_eval_lm, run_train, write_corpus

from alibi_fairseq.attention import BACKENDS
from alibi_fairseq.criterions.linear_cross_entropy import linear_cross_entropy
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.sweep import run_sweep
from alibi_fairseq.positions import METHODS

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
#: Of fairseq's commands: a GPU is the default.
CPU_FLAG = [] if ON_GPU else ["--cpu"]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not ON_GPU and "ALIBI_GPU_REHEARSAL" not in os.environ, reason="needs a GPU"
    ),
]
#: Largest difference to float64 on the CPU, relative to the largest value: in half precision that
#: of a bias of a few hundred tokens, rounded once.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 5e-2, torch.float16: 5e-3}


@pytest.mark.parametrize("backend", list(BACKENDS))
@pytest.mark.parametrize(
    "call",
    [
        *(
            Call(name, dtype=t, width=64, device=DEVICE)
            for name in sorted(METHODS)
            for t in TOLERANCE
        ),
        *(Call(name, width=64, documents=True, device=DEVICE) for name in ("alibi", "none")),
    ],
    ids=str,
)
def test_attention(call, backend):
    """Compare values and gradients of every method on every backend that supports it.

    CoPE is compared away from whole counts, where its gradient jumps (``WHOLE_COUNT_MARGIN`` in
    tests/attention_calls.py).
    """
    if backend not in supporting(call):
        pytest.skip(f"{backend} does not support this call here")
    assert_close(results(call, backend), reference(call), TOLERANCE[call.dtype])


@pytest.mark.parametrize("method", sorted(METHODS))
@torch.no_grad()
def test_cached_decoding(method):
    model = small_model(method).to(DEVICE)
    tokens = random_tokens(2, 24).to(DEVICE)
    state: dict = {}
    steps = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in range(1, 25)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(tokens)[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
def test_chunked_cross_entropy(dtype):
    targets = torch.randint(5000, (700,))
    x = torch.randn(700, 64, dtype=dtype)
    weight = torch.randn(5000, 64, dtype=dtype) / 8
    there = [t.to(DEVICE).requires_grad_() for t in (x, weight)]
    loss = linear_cross_entropy(targets.to(DEVICE), tuple(there))
    found = [loss.detach(), *torch.autograd.grad(loss, there)]
    exact = [t.double().requires_grad_() for t in (x, weight)]
    true = torch.nn.functional.cross_entropy(exact[0] @ exact[1].t(), targets, reduction="sum")
    expected = [true.detach(), *torch.autograd.grad(true, exact)]
    for one, other in zip(found, expected, strict=True):
        error = (one.cpu().double() - other).abs().max() / other.abs().max()
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


def test_resumed_run_matches_uninterrupted_run(data, tmp_path):
    """Also the memory of a recurrent model."""
    memory = ["--task", "segment_language_modeling", "--position-method", "transformer_xl"]
    memory += ["--mem-len", "12", "--tokens-per-sample", "8", "--batch-size", "4"]
    runs = {}
    for folder, stops in (("whole", [17]), ("parts", [10, 17])):
        for stop in stops:
            flags = [*memory, "--max-update", str(stop)]
            runs[folder] = run_train(data, tmp_path / folder, *flags, device=" ".join(CPU_FLAG))
    for name, tensor in runs["whole"]["model"].items():
        resumed = runs["parts"]["model"][name]
        torch.testing.assert_close(resumed, tensor, rtol=0, atol=1e-5, msg=name)


@pytest.mark.parametrize("flags", [(), ADAPTIVE], ids=["softmax", "adaptive softmax"])
def test_evaluation_matches_fairseq_eval_lm(data, tmp_path, flags):
    train(data, tmp_path, *flags)
    checkpoint = tmp_path / "checkpoint_last.pt"
    config = SweepConfig(lengths=(16, 48))
    for cell in run_sweep(data, [checkpoint], config, tmp_path / "results.json"):
        options = ["--gen-subset", "valid", "--tokens-per-sample", str(cell["length"])]
        theirs = run_eval_lm(data, checkpoint, *options, device=" ".join(CPU_FLAG))["loss"]
        assert cell["loss_bits"] == pytest.approx(float(theirs), abs=1e-3)
