"""Backend selection, and messages for unsupported calls."""

from __future__ import annotations

import logging
import sys
import types

import pytest
import torch
from attention_calls import Call, reference
from commands import ROOT

from alibi_fairseq.attention import FutureMask, attend, backend_selection, flash, flex, skipping
from alibi_fairseq.attention.skipping import certify
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions.alibi import LinearBias
from alibi_fairseq.results.file import load

LONG = Call(length=1024)


@pytest.fixture(autouse=True)
def _nothing_logged_yet():
    backend_selection._log_once.cache_clear()
    flash._kernel.cache_clear()
    yield
    flash._kernel.cache_clear()


def select_backend(call: Call, dropout_p: float = 0.0, device: str | None = None, **kwargs) -> str:
    q, k, v, _ = call.tensors()
    if device:
        q, k, v = (x.to(device) for x in (q, k, v))
    return backend_selection.choose_backend("auto", q, k, v, call.mask(), dropout_p, **kwargs)


def test_auto_on_cpu():
    assert select_backend(Call(length=2048, width=64, batch=1)) == "skipping"
    assert select_backend(Call(length=128, cached=3000, width=64)) == "skipping"
    assert select_backend(Call()) == "sdpa"
    assert select_backend(Call(length=1, cached=4000)) == "sdpa"
    assert select_backend(Call(length=1024, padded=True)) == "sdpa"
    assert select_backend(LONG, dropout_p=0.1) == "sdpa"


@pytest.mark.parametrize(
    "method", ["none", "sinusoidal", "t5", "kerple", "sandwich", "transformer_xl"]
)
def test_auto_on_cpu_is_sdpa_without_fixed_slopes(method):
    assert select_backend(Call(method=method, length=1024)) == "sdpa"


class CappedBias(LinearBias):
    """ALiBi with the same bias at all distances from 32 on."""

    def at(self, distance):
        return super().at(distance.clamp(max=32))


@pytest.mark.parametrize("length", [128, 2048])
def test_subclass_of_linear_bias_keeps_its_formula(length):
    q, k, v, _ = Call(length=length, width=64, batch=1).tensors()
    mask = FutureMask(CappedBias(8), length, length)
    expected, _ = attend(q, k, v, mask, backend="eager")
    output, _ = attend(q, k, v, mask, backend="auto")
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", ["fold", "flex", "skipping"])
@pytest.mark.parametrize("length", [128, 2048])
def test_backends_for_slopes_do_not_support_a_subclass_of_linear_bias(length, backend):
    q, k, v, _ = Call(length=length, width=64, batch=1).tensors()
    mask = FutureMask(CappedBias(8), length, length)
    reason = backend_selection.BACKENDS[backend].unsupported_reason(q, k, v, mask, 0.0)
    assert reason is not None


def measured_times() -> dict[tuple, dict[str, float]]:
    """Return the milliseconds by backend of each call measured by ``benchmarks.backends``.

    They are geometric means over both sizes of weights, which the selection does not know.
    """
    results = load(ROOT / "results" / "benchmarks" / "backends-cpu.json")
    names = ("threads", "phase", "batch", "heads", "length", "head_size")
    calls: dict[tuple, dict[str, float]] = {}
    for record in results.benchmarks:
        times = calls.setdefault(tuple(record.case[name] for name in names), {})
        backend = record.case["variant"]
        times[backend] = times.get(backend, 1.0) * record.measured["milliseconds"] ** 0.5
    return calls


def test_auto_selects_fastest_measured_backend(monkeypatch):
    """Allow for the variation between measurements."""
    slower = {}
    for call, milliseconds in measured_times().items():
        threads, phase, *shape = call
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        q = torch.empty(shape, requires_grad=phase == "train")
        mask = FutureMask(LinearBias(shape[1]), shape[2], shape[2])
        selected = backend_selection.choose_backend("auto", q, q, q, mask, 0.0)
        if milliseconds[selected] > 1.05 * min(milliseconds.values()):
            slower[call] = selected, milliseconds
    assert not slower
    assert {call[-1] for call in measured_times()} == {16, 32, 64, 128}
    assert len(measured_times()) == 64


@pytest.mark.parametrize(
    ("method", "queries", "dropout_p", "window", "expected"),
    [
        ("alibi", 512, 0.0, 0, "flash flex fold"),
        ("alibi", 32767, 0.0, 0, "flash flex fold"),
        ("alibi", 32768, 0.0, 0, "skipping flash flex fold"),
        ("alibi", 512, 0.1, 0, "flash flex fold"),
        ("alibi", 1, 0.0, 0, "flash sdpa"),
        ("none", 512, 0.0, 0, "sdpa"),
        ("none", 512, 0.0, 100, "flex sdpa"),
        ("t5", 512, 0.0, 0, "flex sdpa"),
    ],
)
def test_preferences_on_gpu(method, queries, dropout_p, window, expected):
    """Check the order only: support is tested again on the GPU."""
    q = types.SimpleNamespace(device=torch.device("cuda"), shape=(1, 8, queries, 64))
    mask = Call(method, window=window).mask()
    assert backend_selection._preferences(q, mask, dropout_p) == tuple(expected.split())


def test_auto_logs_backend_once(caplog):
    q, k, v, _ = LONG.tensors()
    with caplog.at_level(logging.INFO, logger="alibi_fairseq"):
        attend(q, k, v, LONG.mask())
        attend(q, k, v, LONG.mask())
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"attention backend: {select_backend(LONG)} (cpu, float32)"]


UNSUPPORTED = {
    "flash": (Call(), 0.0, "flash needs the package flash-attn"),
    "fold": (Call(method="t5"), 0.0, "fold supports no bias other than ALiBi"),
    "skipping": (Call(), 0.1, "skipping has no attention dropout"),
    "flex": (Call(), 0.0, "flex has no backward pass on the CPU"),
}


@pytest.mark.parametrize("backend", list(UNSUPPORTED))
def test_unsupported_backend_names_reason_and_alternatives(backend, monkeypatch, caplog):
    """Raise for a backend of the command line; replace that of a checkpoint, with one warning."""
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    call, dropout_p, reason = UNSUPPORTED[backend]
    q, k, v, _ = (x.requires_grad_() for x in call.tensors())
    with pytest.raises(UserInputError, match=reason) as raised:
        attend(q, k, v, call.mask(), dropout_p, backend=backend, strict=True)
    alternative = str(raised.value).split("--attention-backend ")[1].split()[0]
    attend(q, k, v, call.mask(), dropout_p, backend=alternative, strict=True)
    with caplog.at_level(logging.WARNING, logger="alibi_fairseq"):
        for _ in range(2):
            attend(q, k, v, call.mask(), dropout_p, backend=backend)
    assert len(caplog.records) == 1
    assert reason in caplog.text


@pytest.fixture
def flash_calls(monkeypatch):
    """Replace flash_attn_func, which requires a GPU, and return the list of its calls."""
    calls = []

    def flash_attn_func(q, k, v, *, dropout_p, softmax_scale, causal, window_size, alibi_slopes):
        calls.append((dropout_p, window_size[0], alibi_slopes))
        assert causal
        assert window_size[1] == -1
        assert alibi_slopes.dtype == torch.float32
        assert all(x.stride(-1) == 1 for x in (q, k, v))
        q, k, v = (x.transpose(1, 2).double() for x in (q, k, v))  # from (B, T, H, D)
        queries = q.shape[2]
        keys = k.shape[2]
        distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        # Keys from i − left to i + right are seen; −1 is no limit, and causal makes right 0.
        left = window_size[0] if window_size[0] >= 0 else keys
        scores = q @ k.mT * softmax_scale - alibi_slopes.double().view(-1, 1, 1) * distance
        scores = scores.masked_fill((distance < 0) | (distance > left), -torch.inf)
        return (torch.softmax(scores, -1) @ v).transpose(1, 2)

    package = types.ModuleType("flash_attn")
    package.flash_attn_func = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    return calls


@pytest.mark.parametrize("window", [0, 100])
def test_flash_attention_call_follows_documentation(flash_calls, window):
    call = Call(cached=50, dtype=torch.bfloat16, window=window)
    q, k, v, _ = call.tensors()
    output = flash.attend(q, k, v, call.mask(), 0.1)
    torch.testing.assert_close(output, reference(call)[0], rtol=0, atol=1e-6)
    assert flash_calls[0][0] == 0.1


@pytest.mark.ci
def test_skipping_with_flash_attention(flash_calls):
    """Check for fewer calls than heads, and for the values of dense attention."""
    call = Call(length=1500, cached=40, heads=12, batch=1)
    q, k, v, _ = call.tensors()
    slopes = call.bias().slopes(q.device)
    windows = certify(q, k, slopes).windows.amax(dim=0)
    output = flash.attend_within(q, k, v, slopes, windows)
    expected, _ = attend(q, k, v, call.mask(), backend="eager")
    torch.testing.assert_close(output.float(), expected, rtol=0, atol=2e-6)
    limits = [limit for _, limit, _ in flash_calls]
    assert len(limits) < 12
    assert 0 < sorted(limits)[1] < 400
    assert -1 in limits
    assert torch.equal(torch.cat([call_slopes for *_, call_slopes in flash_calls]), slopes)


def test_heads_with_similar_windows_share_call():
    groups = flash.group_heads([60, 120, 500, 2000, 2100, 4000], num_keys=4000)
    assert groups == [(0, 3, 512), (3, 6, -1)]
    assert flash.group_heads([4000, 60], num_keys=4000) == [(0, 1, -1), (1, 2, 128)]


@pytest.mark.parametrize(
    ("tensor", "call", "supported"),
    [
        ({}, Call(), True),
        ({}, Call(padded=True), False),
        ({}, Call(documents=True), False),
        ({}, Call(method="t5"), False),
        ({"device": torch.device("cpu")}, Call(), False),
        ({"dtype": torch.float32}, Call(), False),
        ({"shape": (1, 1, 8, 512)}, Call(), False),
    ],
    ids=str,
)
def test_calls_that_flash_supports(monkeypatch, tensor, call, supported):
    monkeypatch.setattr(flash, "_kernel", lambda: print)
    usual = {"device": torch.device("cuda"), "dtype": torch.bfloat16, "shape": (1, 1, 8, 64)}
    q = types.SimpleNamespace(**{**usual, **tensor})
    reason = flash.unsupported_reason(q, None, None, call.mask(), 0.0)
    assert (reason is None) == supported


def test_skipping_on_gpu_requires_kernel(monkeypatch):
    reasons = {}
    for module in (flash, flex):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(
            module, "unsupported_reason", lambda *call, name=name: reasons.get(name)
        )

    def reason(device: str) -> str | None:
        q = types.SimpleNamespace(device=torch.device(device))
        return skipping.unsupported_reason(q, q, q, Call().mask(), 0.0)

    assert reason("cuda") is None
    reasons["flash"] = "flash does not"
    assert reason("cuda") is None
    reasons["flex"] = "flex does not"
    assert reason("cuda") == "skipping uses flex on a GPU, and flex does not"
    assert reason("cpu") is None
