"""Mistakes that only a GPU shows, found without one: tensors on two devices, and needless waiting."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
import torch
from conftest import build_model, dictionary_of
from fairseq.criterions import CRITERION_REGISTRY
from fake_gpu import DEVICE, TARGETS, Host, moved
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from alibi_fairseq.attention import BACKENDS, FutureMask, flex
from alibi_fairseq.criterions import linear_cross_entropy
from alibi_fairseq.evaluation import measure as scoring
from alibi_fairseq.evaluation.measure import Stream, measure
from alibi_fairseq.evaluation.windows import Window
from alibi_fairseq.models.language_model import AdaptiveInput
from alibi_fairseq.positions import METHODS, PositionConfig, alibi, build_position_method
from alibi_fairseq.tasks.segment_memory import Segment, SegmentMemory

BATCH, LENGTH, WORDS = 2, TARGETS // 2, 200
SHAPE = (
    *("--decoder-layers", "2", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--decoder-attention-heads", "4"),
)
ADAPTIVE = (
    *("--no-share-decoder-input-output-embed", "--adaptive-softmax-cutoff", "30,90"),
    *("--adaptive-input", "--adaptive-input-cutoff", "30,90", "--tie-adaptive-weights"),
)


def dense(q, k, v, score_mod=None, block_mask=None, kernel_options=None):
    """What the compiled FlexAttention kernel computes, from its arguments alone."""

    def grid(dim: int, size: int):
        return torch.arange(size, device=q.device).view(-1, *[1] * (3 - dim))

    where = [grid(dim, size) for dim, size in enumerate((*q.shape[:3], k.shape[2]))]
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if score_mod is not None:
        scores = score_mod(scores, *where)
    for table in (block_mask.kv_num_blocks, block_mask.full_kv_indices, block_mask.q_indices):
        assert table.device == q.device
    return scores.masked_fill(~block_mask.mask_mod(*where), -torch.inf).softmax(-1) @ v


@pytest.fixture
def gpu(monkeypatch):
    """A fake GPU: ``gpu.mode`` makes tensors on it, ``gpu.host.waits`` counts who waits for it."""
    for chunks in (linear_cross_entropy.CHUNK, scoring.CHUNK):
        monkeypatch.setitem(chunks, DEVICE.type, 20 * WORDS)
    monkeypatch.setattr(flex, "compiled", lambda: dense)
    monkeypatch.delattr(FakeTensor, "tolist")  # asks for one number after the other
    alibi._slopes_on.cache_clear()
    with FakeTensorMode() as mode, Host() as host:
        yield SimpleNamespace(mode=mode, host=host)
    alibi._slopes_on.cache_clear()


@pytest.mark.parametrize("method", sorted(METHODS))
def test_backends(gpu, method):
    """All but flash, and fold with cached keys: torch's CausalBias cannot be a fake tensor."""
    config = PositionConfig(embed_dim=64, num_heads=4, num_layers=2, train_length=32)
    module = moved(build_position_method(method, config), gpu.mode)
    for name, cached in product(("eager", "sdpa", "fold", "flex", "skipping"), (0, 5)):
        backend, keys = BACKENDS[name], 300 + cached
        bias = module.bias(0, keys)
        trained = bias is not None and bias.needs_grad
        if (
            not backend.supports(bias)
            or (name == "flex" and trained)
            or (name == "fold" and cached)
        ):
            continue
        if bias is not None and name == "skipping":
            bias.slopes(DEVICE)  # copied there once for all calls
        gpu.host.waits.clear()
        q, k, v = (
            torch.empty(2, 4, n, 16, device=DEVICE, requires_grad=True) for n in (300, keys, keys)
        )
        out = backend.attend(q, k, v, FutureMask(bias, 300, keys), 0.0)
        grads = torch.autograd.grad(out, (q, k, v), torch.empty_like(out))
        assert {x.device for x in (out, *grads)} == {DEVICE}, name
        assert not gpu.host.waits, name


def batch() -> dict:
    tokens = torch.empty(BATCH, LENGTH, dtype=torch.long, device=DEVICE)
    inputs = {"src_tokens": tokens, "src_lengths": tokens[:, 0]}
    return {"net_input": inputs, "target": tokens, "ntokens": TARGETS - 3}


#: A method for each place where one can act.
ACTING = ("alibi", "sinusoidal", "learned", "rotary", "xpos", "fox", "transformer_xl")
CASES = [(method, "chunked_cross_entropy", ()) for method in ACTING]
CASES += [("alibi", "chunked_adaptive_loss", ADAPTIVE), ("alibi", "cross_entropy", ())]


@pytest.mark.parametrize("method,criterion,flags", CASES)
def test_a_training_step_waits_only_where_a_comment_says_why(gpu, method, criterion, flags):
    model = on_gpu(gpu, "--position-method", method, *flags).train()
    task = SimpleNamespace(target_dictionary=dictionary_of(WORDS - 4))
    step = CRITERION_REGISTRY[criterion](task, False)
    for _ in range(2):
        gpu.host.waits.clear()  # of the first step, which moves constants to the GPU
        loss, size, logs = step(model, batch())
        loss.backward()
    assert all(p.grad is None or p.grad.device == DEVICE for p in model.parameters())
    assert sum(p.grad is not None for p in model.parameters()) > 10
    expected = {"find_clusters": 1} if criterion == "chunked_adaptive_loss" else {}
    assert gpu.host.waits == expected
    assert isinstance(size, int) and isinstance(logs["ntokens"], int)


def on_gpu(gpu, *flags: str, **options):
    """A model of two layers on the fake GPU."""
    with _disable_current_modes():
        model = build_model("--arch", "alibi_lm", *SHAPE, *flags, words=WORDS - 4, **options)
    return moved(model, gpu.mode)


def test_fairseqs_own_adaptive_input_is_seen_to_wait(gpu):
    """It picks the tokens of each band by a mask."""
    embed = on_gpu(gpu, *ADAPTIVE).decoder.embed_tokens
    with pytest.raises(DynamicOutputShapeException):
        AdaptiveInput.__base__.forward(embed, batch()["net_input"]["src_tokens"])


def test_a_tensor_left_on_the_cpu_is_seen(gpu):
    with pytest.raises(RuntimeError, match="same device"):
        torch.arange(4, device=DEVICE) + torch.arange(4)


def test_segment_memory(gpu):
    flags = ("--position-method", "transformer_xl", "--mem-len", "16")
    model, memory = on_gpu(gpu, *flags, sequential=True).train(), SegmentMemory()
    for number in range(3):
        tokens = batch()["net_input"]["src_tokens"]
        scores, _ = model(tokens, segment=Segment(number, memory))
        scores.sum().backward()
    assert {state.device for state in memory.past(3)} == {DEVICE}
    assert not gpu.host.waits


@pytest.mark.parametrize("flags", [(), ADAPTIVE], ids=["softmax", "adaptive softmax"])
@torch.no_grad()
def test_evaluation(gpu, flags):
    model = on_gpu(gpu, *flags).eval()

    def score(inputs, targets):
        features, _ = model.decoder.extract_features(inputs, last=targets.shape[1])
        return scoring.token_losses(model.decoder, features, targets)

    text = torch.empty(100, dtype=torch.long, device=DEVICE)
    windows = [[Window(start, start, start + LENGTH) for start in (0, LENGTH)]]
    (total,) = measure(score, Stream(text, text, "valid"), windows, [0, LENGTH])
    assert total.tokens == TARGETS
    assert gpu.host.waits.total() <= 5


@pytest.mark.parametrize("factor", ["1", "4"])
def test_every_band_of_adaptive_input_has_fairseqs_values_and_gradients(factor):
    """The form that is used on a GPU, compared on the CPU."""
    flags = (*ADAPTIVE, "--adaptive-input-factor", factor, "--adaptive-softmax-factor", factor)
    embed = build_model("--arch", "alibi_lm", *SHAPE, *flags, words=WORDS - 4).decoder.embed_tokens
    tokens = torch.randint(0, WORDS, (3, 50))
    tokens[0, :3] = torch.tensor([1, 29, 30])  # padding, and both sides of a cutoff
    results = []
    for forward in (AdaptiveInput.__base__.forward, AdaptiveInput.every_band):
        embed.zero_grad()
        out = forward(embed, tokens)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad for p in embed.parameters())])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
