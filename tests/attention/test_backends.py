"""Values and gradients of every backend, compared with the formula in float64."""

from __future__ import annotations

from functools import cache
from itertools import accumulate

import pytest
import torch
from attention_calls import Call, assert_close, reference, results, supporting
from torch.profiler import ProfilerActivity, profile

from alibi_fairseq.attention import FutureMask, attend, banded, sdpa
from alibi_fairseq.attention.eager import bounded_block
from alibi_fairseq.attention.fold import extra_dimensions
from alibi_fairseq.positions import (
    METHODS,
    PositionConfig,
    alibi,
    alibi_slopes,
    build_position_method,
)
from alibi_fairseq.positions.alibi import LinearBias

#: Largest difference to the reference, relative to the largest value.
TOLERANCE = {
    torch.float64: 1e-11,
    torch.float32: 5e-6,
    torch.bfloat16: 2e-2,
    torch.float16: 4e-3,
}
LIMITS = [{"documents": True}, {"documents": True, "window": 90}]
LIMITS += [{"window": window} for window in (2, 128, 200)]
#: Methods that act on the scores.
BIASED = [method for method in METHODS if Call(method).bias() is not None]
CALLS = [Call(heads=heads, cached=cached) for heads in (1, 12) for cached in (0, 170)]
CALLS += [Call(dtype=dtype) for dtype in TOLERANCE]
CALLS += [Call("fox", heads=6, dtype=t, cached=9) for t in (torch.float64, torch.bfloat16)]
CALLS += [Call(method, cached=33) for method in BIASED]
CALLS += [Call(method, padded=True) for method in BIASED if method != "fire"]
CALLS += [Call(heads=12, length=n, cached=20, padded=p) for n in (1, 63, 257) for p in (0, 1)]
CALLS += [
    Call(method, cached=cached, heads=2, width=8, **limit)
    for method, cached in (("alibi", 0), ("alibi", 70), ("none", 70), ("transformer_xl", 70))
    for limit in LIMITS
]


cached_reference = cache(reference)


def with_backends(calls: list[Call]) -> list[tuple[Call, str]]:
    """Return each call with each backend that supports it."""
    return [(call, backend) for call in calls for backend in sorted(supporting(call))]


@pytest.mark.parametrize(
    ("call", "backend"), [*with_backends(CALLS), *((call, "auto") for call in CALLS)], ids=str
)
def test_values_and_gradients(call, backend):
    """tests/models/test_decoding.py pads FIRE, which counts from the first token."""
    tolerance = TOLERANCE[call.dtype]
    if call.method == "fox" and call.dtype == torch.float32:
        tolerance = 1e-5  # its gates are summed along the sequence before they are subtracted
    assert_close(results(call, backend), cached_reference(call), tolerance)


@pytest.mark.parametrize(
    ("call", "dropout_p", "training", "evaluation"),
    [
        (Call(width=24), 0.0, "fold skipping", "fold skipping flex"),
        (Call(width=16), 0.0, "fold skipping", "fold skipping"),
        (Call("none", width=24), 0.0, "fold", "fold flex"),
        (Call("fox"), 0.0, "fold", "fold"),
        (Call("fox", dtype=torch.float16), 0.0, "", ""),
        (Call("t5"), 0.0, "", ""),
        (Call(), 0.1, "", ""),
        (Call(padded=True), 0.0, "", ""),
        (Call(documents=True), 0.0, "", ""),
        (Call(window=100, width=24), 0.0, "", "flex"),
        (Call(dtype=torch.float64), 0.0, "fold skipping", "fold skipping"),
        (Call(dtype=torch.bfloat16, batch=1, heads=1, width=24, length=2, cached=65_535), 0.0,
         "skipping", "skipping flex"),
    ],
    ids=str,
)  # fmt: skip
def test_backends_supporting_calls_on_cpu(call, dropout_p, training, evaluation):
    """``eager`` and ``sdpa`` support every call."""
    assert supporting(call, dropout_p) == {"eager", "sdpa", *training.split()}
    with torch.no_grad():
        assert supporting(call, dropout_p) == {"eager", "sdpa", *evaluation.split()}


@pytest.mark.parametrize(
    "method", ["t5", "kerple", "transformer_xl", "fire", "cope", "bam", "grape_a_qk"]
)
def test_bias_gradients_match_reference(method):
    call = Call(method=method, length=600, batch=1, heads=2)
    module = build_position_method(method, PositionConfig(32, 2, 2, 32)).double()
    for parameter in module.parameters():
        if not parameter.any():
            parameter.data.normal_()
    q, k, v, output_gradient = (x.double() for x in call.tensors())

    def parameter_gradients(backend: str):
        """Return the gradients of the parameters of the first layer."""
        mask = FutureMask(module.bias(0, 600), 600, 600)
        out, _ = attend(q, k, v, mask, backend=backend)
        parameters = [*module.parameters()]
        gradients = torch.autograd.grad(out, parameters, output_gradient, allow_unused=True)
        return [gradient for gradient in gradients if gradient is not None]

    reference_gradients = parameter_gradients("eager")
    assert reference_gradients
    for gradient, expected in zip(parameter_gradients("sdpa"), reference_gradients, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-6)


LONG = {"heads": 6, "batch": 1, "length": 32, "width": 64}


@pytest.mark.parametrize(
    "call",
    [
        Call("alibi", cached=16_352, dtype=torch.float32, **LONG),
        Call("alibi", cached=16_352, dtype=torch.bfloat16, **LONG),
        Call("fox", cached=16_352, dtype=torch.float32, **LONG),
        Call("fox", cached=16_352, dtype=torch.bfloat16, **LONG),
        Call("alibi", cached=8_000, dtype=torch.float16, **LONG),
        Call("fox", heads=1, batch=1, length=2000),
    ],
    ids=str,
)
@pytest.mark.parametrize("backend", ["sdpa", "fold"])
def test_long_input_keeps_precision(call, backend):
    """At these lengths, absolute positions have errors of 8e-5, and FoX's sum is near −11,000."""
    q, k, v, _ = call.tensors()
    mask = call.mask()
    exact, _ = attend(q.double(), k.double(), v.double(), mask, backend="eager")
    output, _ = attend(q, k, v, mask, backend=backend)
    error = (output.double() - exact).abs().max() / exact.abs().max()
    # In half precision the result itself is rounded.
    limit = 5e-6 if call.dtype == torch.float32 else 2 * torch.finfo(call.dtype).eps
    assert error < limit


@pytest.mark.parametrize(
    ("queries", "keys"), [(1030, 1030), (3, 1030), (3, 4096), (258, 4096), (4030, 4030)]
)
def test_incomplete_tiles_have_the_rounding_of_absolute_positions(queries, keys):
    """The largest slope is 1/2, and a sum of half of the products is rounded."""
    call = Call("alibi", length=queries, cached=keys - queries, batch=1)
    q, k, v, _ = call.tensors()
    exact, _ = attend(q.double(), k.double(), v.double(), call.mask(), backend="eager")
    output, _ = attend(q, k, v, call.mask(), backend="fold")
    error = (output.double() - exact).abs().max() / exact.abs().max()
    assert error < 2 * torch.finfo(torch.float32).eps * keys / 2


def peak_memory(backend: str, dropout_p: float, length: int, **limit: bool) -> int:
    """Return the peak of allocated bytes in a forward and backward pass, by torch's profiler."""
    call = Call(batch=1, heads=2, length=length, width=8, size=0.5, **limit)
    q, k, v, grad = call.tensors()
    mask = call.mask()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        out, _ = attend(*inputs, mask, dropout_p, backend=backend, strict=True)
        torch.autograd.grad(out, inputs, grad)
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in events))


@pytest.mark.parametrize(
    ("backend", "dropout_p"),
    [("eager", 0.0), ("sdpa", 0.0), ("sdpa", 0.1), ("fold", 0.0), ("skipping", 0.0)],
)
def test_only_eager_memory_grows_quadratically(backend, dropout_p, monkeypatch):
    def run_in_this_thread(tasks):
        for task in tasks:
            task()

    # The profiler sees only this thread.
    monkeypatch.setattr(banded, "run_parallel", run_in_this_thread)
    growth = peak_memory(backend, dropout_p, 2048) / peak_memory(backend, dropout_p, 1024)
    if backend == "eager":
        assert growth > 3
    else:
        assert growth < 2.5


@pytest.mark.parametrize("limit", ["documents", "padded"])
def test_memory_of_masks_per_sequence_is_linear(limit):
    short = peak_memory("sdpa", 0.0, 1024, **{limit: True})
    long = peak_memory("sdpa", 0.0, 2048, **{limit: True})
    assert long < 2.5 * short


@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
@pytest.mark.parametrize("width", [32, 64])
def test_extra_dimensions_hold_slopes_and_positions(dtype, width):
    """Check that the products are −slope · distance · √D, up to a constant per row."""
    slopes = alibi_slopes(12)
    mask = FutureMask(None, 3, 60_000)
    for_queries, for_keys = extra_dimensions(slopes, mask, width, dtype)
    products = for_queries.double() @ for_keys.double().mT / width**0.5  # (H, T, S)
    distance = torch.arange(59_997, 60_000)[:, None] - torch.arange(60_000)
    expected = -slopes.double()[:, None, None] * distance
    common = (products - expected)[..., :1] if dtype.itemsize == 2 else 0
    # fp16 has no numbers below 6e-8.
    atol = 2e-3 if dtype == torch.float16 else 1e-6
    torch.testing.assert_close(products - common, expected, rtol=3e-7, atol=atol)


def test_weights_match_reference():
    call = Call(cached=5)
    q, k, v, _ = call.tensors()
    out, weights = attend(q, k, v, call.mask(), backend="skipping", need_weights=True)
    distance = torch.arange(5, 305)[:, None] - torch.arange(305)
    scores = q.double() @ k.double().mT / 4 - alibi_slopes(8).double().view(-1, 1, 1) * distance
    expected = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)  # (B, H, T, S)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(out.double(), expected @ v.double(), rtol=1e-5, atol=1e-5)


DROPOUT_CALLS = [Call("none", cached=40), Call("t5", length=600), Call(documents=True)]


@pytest.mark.parametrize("call", DROPOUT_CALLS, ids=str)
def test_dropout_matches_reference(call):
    """From the same random state, ``sdpa`` drops the same weights as ``eager``."""
    torch.manual_seed(5)
    expected = results(call, "eager", 0.3)
    after_eager = torch.rand(3)

    torch.manual_seed(5)
    dropped = results(call, "sdpa", 0.3)
    after_sdpa = torch.rand(3)
    assert_close(dropped, expected, 1e-5)
    assert torch.equal(after_sdpa, after_eager)

    torch.manual_seed(5)
    q, k, v, _ = call.tensors()
    with torch.no_grad():
        without_grad, _ = attend(q, k, v, call.mask(), 0.3, backend="sdpa")
    torch.testing.assert_close(without_grad.double(), expected[0], rtol=0, atol=1e-5)

    without_dropout, *_ = results(call, "auto")
    assert (dropped[0] - without_dropout).abs().max() > 0.01, "nothing was dropped"


@pytest.mark.parametrize("call", DROPOUT_CALLS, ids=str)
def test_random_state_is_unchanged_without_dropout(call):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    results(call, "auto")
    assert torch.equal(torch.rand(3), expected)


@torch.no_grad()
def test_dropout_keeps_mean():
    """The mean of 100 draws is 1 times the output without dropout, not 0.8 times."""
    call = Call(batch=1, length=40, heads=2)
    q, k, v, _ = call.tensors()
    plain, _ = attend(q, k, v, call.mask())
    repeated = [x.expand(100, -1, -1, -1) for x in (q, k, v)]
    dropped, _ = attend(*repeated, call.mask(), dropout_p=0.2)
    mean = dropped.mean(0)
    ratio = (mean * plain[0]).sum() / plain.square().sum()
    assert ratio.item() == pytest.approx(1, abs=0.02)
    assert (mean - plain[0]).abs().mean() < 0.05


@pytest.mark.parametrize(
    ("call", "backend"),
    with_backends([Call(method, batch=1, length=40) for method in BIASED]),
    ids=str,
)
def test_gradients_after_inference_mode(call, backend):
    alibi._slopes_on.cache_clear()
    with torch.inference_mode():
        attend(*call.tensors()[:3], call.mask(), backend=backend, strict=True)
    assert_close(results(call, backend), cached_reference(call), 1e-5)


@pytest.mark.parametrize(
    "call",
    [
        Call(heads=2, length=512),
        Call(heads=2, length=512, window=128),
        Call(heads=2, length=512, window=256),
        Call("none", heads=2, length=512, window=100),
        Call(heads=2, length=512, documents=True),
        Call(heads=2, length=510, documents=True, window=90),
        Call("none", heads=2, length=517, cached=3),
        Call(heads=2, length=517, cached=3, window=256),
    ],
    ids=str,
)
def test_fused_kernel_can_read_masks(call, monkeypatch):
    """PyTorch pads a mask unless all strides but the last one, 1, are multiples of 8."""
    compute = sdpa.scaled_dot_product_attention
    masks = []

    def spy(*arguments, attn_mask, **keywords):
        masks.append(attn_mask)
        return compute(*arguments, attn_mask=attn_mask, **keywords)

    monkeypatch.setattr(sdpa, "scaled_dot_product_attention", spy)
    assert_close(results(call, "sdpa"), reference(call), TOLERANCE[call.dtype])
    assert len(masks) >= 2
    for mask in masks:
        is_padded = any(stride % 8 for stride in mask.stride()[:-1])
        assert is_padded or mask.storage_offset() % 8 == 0


def test_bias_is_computed_once_per_model(monkeypatch):
    """This applies in training too, unless the bias is learned."""
    computed = []
    at = LinearBias.at

    def count(*arguments):
        computed.append(arguments)
        return at(*arguments)

    monkeypatch.setattr(LinearBias, "at", count)
    call = Call(length=600, heads=2)
    mask = call.mask()
    for _ in range(2):
        results(call, "sdpa", mask=mask)
    assert len(computed) == 1


@pytest.mark.parametrize(
    ("heads", "keys", "queries"), [(1, 8192, 256), (1, 8193, 128), (16, 600, 128), (1024, 9999, 16)]
)
def test_blocks_respect_score_memory_limit(heads, keys, queries):
    """A block has at most 2^21 scores, unless it has only 16 queries."""
    assert bounded_block(torch.empty(1, heads, 300, 1), keys) == queries
