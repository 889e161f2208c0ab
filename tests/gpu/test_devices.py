"""Mixed devices and needless synchronization on a GPU, detected without one.

PyTorch's fake tensors on the device "meta" represent the tensors of a GPU. They hold no values: an
operation on a fake tensor and a CPU tensor fails, and so does any operation that makes the host
wait for a value.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from conftest import build_model, small_dictionary
from fairseq.criterions import CRITERION_REGISTRY
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.nn.attention.flex_attention import flex_attention

from alibi_fairseq.attention import BACKENDS, FutureMask, flex_kernel
from alibi_fairseq.evaluation.checkpoint import token_losses
from alibi_fairseq.models.language_model import AdaptiveInput
from alibi_fairseq.plugin import linear_cross_entropy
from alibi_fairseq.plugin.segment_memory import Segment, SegmentMemory
from alibi_fairseq.positions import (
    METHODS,
    PendingBias,
    PositionConfig,
    alibi,
    build_position_method,
    compute_features,
)

BATCH = 2
LENGTH = 24
WORDS = 200
DEVICE = torch.device("meta")
SHAPE = (
    *("--arch", "alibi_lm", "--decoder-layers", "2", "--decoder-embed-dim", "32"),
    *("--decoder-ffn-embed-dim", "32", "--decoder-attention-heads", "4"),
)
ADAPTIVE = (
    *("--no-share-decoder-input-output-embed", "--adaptive-softmax-cutoff", "30,90"),
    *("--adaptive-input", "--adaptive-input-cutoff", "30,90", "--tie-adaptive-weights"),
)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setitem(linear_cross_entropy.CHUNK, DEVICE.type, 20 * WORDS)

    def uncompiled(q, k, v, score_mod, blocks, options):
        return flex_attention(q, k, v, score_mod, blocks)

    for name in ("attention_for_all_shapes", "attention_for_one_shape"):
        monkeypatch.setattr(flex_kernel, name, lambda: uncompiled)
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *call: None)
    alibi._slopes_on.cache_clear()
    with FakeTensorMode(allow_non_fake_inputs=True):  # torch.tensor returns a real tensor
        yield
    alibi._slopes_on.cache_clear()


def build_on_gpu(*flags: str, **options):
    with DEVICE:
        return build_model(*SHAPE, *flags, words=WORDS - 4, **options)


def tokens() -> torch.Tensor:
    return torch.empty(BATCH, LENGTH, dtype=torch.long, device=DEVICE)


@pytest.mark.parametrize("cached", [0, 5])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_backends_keep_device(gpu, method, cached):
    """Skip flash, flex with learned biases, and fold with cached keys.

    fold passes cached keys to PyTorch with a CausalBias, which cannot be a fake tensor.
    """
    queries = 300
    keys = queries + cached
    with DEVICE:
        module = build_position_method(method, PositionConfig(64, 4, 2, 32))
        features = compute_features(module, 0, torch.empty(keys, 2, 64), None)
    bias = module.bias(0, keys)
    if isinstance(bias, PendingBias):
        bias = module.feature_bias(0, features)
    skipped = {"flash"}
    if bias is not None and bias.needs_grad:
        skipped.add("flex")
    if cached:
        skipped.add("fold")
    q = torch.empty(2, 4, queries, 16, device=DEVICE, requires_grad=True)
    k = torch.empty(2, 4, keys, 16, device=DEVICE, requires_grad=True)
    v = torch.empty(2, 4, keys, 16, device=DEVICE, requires_grad=True)
    for name in BACKENDS.keys() - skipped:
        call = (q, k, v, FutureMask(bias, queries, keys), 0.0)
        reason = BACKENDS[name].unsupported_reason(*call) or ""
        if "bias" not in reason:
            output = BACKENDS[name].attend(*call)
            torch.autograd.grad(output, (q, k, v), torch.empty_like(output))


#: Methods with a criterion and flags of the model. Methods act on different parts of the model.
CASES = [
    ("alibi", "chunked_cross_entropy", ()),
    ("sinusoidal", "chunked_cross_entropy", ()),
    ("learned", "chunked_cross_entropy", ()),
    ("rotary", "chunked_cross_entropy", ()),
    ("xpos", "chunked_cross_entropy", ()),
    ("fox", "chunked_cross_entropy", ()),
    ("transformer_xl", "chunked_cross_entropy", ()),
    ("alibi", "chunked_adaptive_loss", ADAPTIVE),
    ("alibi", "cross_entropy", ()),
]


@pytest.mark.parametrize(("method", "criterion", "flags"), CASES)
def test_training_step_synchronizes_only_as_documented(gpu, method, criterion, flags, monkeypatch):
    waits = 0

    def wait_for_list(tensor):
        nonlocal waits
        waits += 1
        return [BATCH * LENGTH - 2, 1, 1, BATCH * LENGTH]  # targets of each cluster, and of all

    monkeypatch.setattr(FakeTensor, "tolist", wait_for_list)
    model = build_on_gpu("--position-method", method, *flags).train()
    task = SimpleNamespace(target_dictionary=small_dictionary(WORDS - 4))
    inputs = {"src_tokens": tokens(), "src_lengths": tokens()[:, 0]}
    batch = {"net_input": inputs, "target": tokens(), "ntokens": BATCH * LENGTH - 3}
    loss, sample_size, logs = CRITERION_REGISTRY[criterion](task, False)(model, batch)
    loss.backward()
    assert waits == (1 if criterion == "chunked_adaptive_loss" else 0)
    assert sum(parameter.grad is not None for parameter in model.parameters()) > 10
    assert isinstance(sample_size, int)
    assert isinstance(logs["ntokens"], int)


def test_synchronizing_operations_are_detected(gpu):
    """Check with fairseq's adaptive input, which selects tokens of each band by a mask."""
    embed = build_on_gpu(*ADAPTIVE).decoder.embed_tokens
    with pytest.raises(DynamicOutputShapeException):
        AdaptiveInput.__base__.forward(embed, tokens())
    with pytest.raises(DataDependentOutputException):
        tokens().sum().item()
    with pytest.raises(RuntimeError, match="same device"):
        tokens() + torch.arange(LENGTH)


def test_segment_memory_keeps_device(gpu):
    flags = ("--position-method", "transformer_xl", "--mem-len", "16")
    model = build_on_gpu(*flags, sequential=True).train()
    memory = SegmentMemory()
    for number in range(3):
        scores, _ = model(tokens(), segment=Segment(number, memory))
        scores.sum().backward()
    assert {state.device for state in Segment(3, memory).past()} == {DEVICE}


@torch.no_grad()
def test_evaluation_keeps_device(gpu):
    decoder = build_on_gpu().eval().decoder
    features = torch.empty(BATCH, LENGTH, 32, device=DEVICE)
    losses = token_losses(decoder, features, tokens())
    assert losses.device == DEVICE
    assert losses.shape == (BATCH, LENGTH)


@pytest.mark.parametrize("factor", ["1", "4"])
def test_adaptive_input_matches_fairseq(factor):
    """Compare the computation for GPUs on the CPU."""
    flags = (*ADAPTIVE, "--adaptive-input-factor", factor, "--adaptive-softmax-factor", factor)
    embed = build_model(*SHAPE, *flags, words=WORDS - 4).decoder.embed_tokens
    token_ids = torch.randint(0, WORDS, (3, 50))
    token_ids[0, :3] = torch.tensor([1, 29, 30])  # padding, and both sides of a cutoff

    def output_and_gradients(forward) -> list[torch.Tensor]:
        embed.zero_grad()
        output = forward(embed, token_ids)
        output.square().sum().backward()
        gradients = [parameter.grad for parameter in embed.parameters()]
        return [output.detach(), *gradients]

    results = output_and_gradients(AdaptiveInput.every_band)
    fairseq_results = output_and_gradients(AdaptiveInput.__base__.forward)
    for result, expected in zip(results, fairseq_results, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
