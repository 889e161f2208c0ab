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
from alibi_fairseq.results.results_file import load_results_file

LONG = Call(length=1024)


@pytest.fixture(autouse=True)
def _nothing_logged_yet():
    backend_selection._log_once.cache_clear()
    flash._kernel.cache_clear()
    yield
    flash._kernel.cache_clear()


def chosen(call: Call, dropout_p: float = 0.0, device: str | None = None, **kwargs) -> str:
    q, k, v, _ = call.tensors()
    if device:
        q, k, v = (x.to(device) for x in (q, k, v))
    return backend_selection.choose("auto", q, k, v, call.mask(), dropout_p, **kwargs)


def test_auto_on_cpu():
    assert chosen(Call(length=2048, width=64, batch=1)) == "skipping"
    assert chosen(Call(length=128, cached=3000, width=64)) == "skipping"
    assert chosen(Call()) == "sdpa"
    assert chosen(Call(length=1, cached=4000)) == "sdpa"
    assert chosen(Call(length=1024, padded=True)) == "sdpa"
    assert chosen(LONG, dropout_p=0.1) == "sdpa"
    for method in ("none", "sinusoidal", "t5", "kerple", "sandwich", "transformer_xl"):
        assert chosen(Call(method=method, length=1024)) == "sdpa"


def measured() -> dict[tuple, dict[str, float]]:
    """Return the milliseconds by backend of each call measured by ``benchmarks.backends``.

    They are geometric means over both sizes of weights, which the selection does not know.
    """
    document = load_results_file(ROOT / "results" / "benchmarks" / "backends-cpu.json")
    calls: dict[tuple, dict[str, float]] = {}
    for cell in document["cells"]:
        names = ("threads", "phase", "batch", "heads", "length", "head_size")
        times = calls.setdefault(tuple(cell[name] for name in names), {})
        times[cell["variant"]] = times.get(cell["variant"], 1.0) * cell["milliseconds"] ** 0.5
    return calls


def test_auto_selects_fastest_measured_backend(monkeypatch):
    """Allow for the variation between measurements."""
    slower = {}
    for call, milliseconds in measured().items():
        threads, phase, *shape = call
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        q = torch.empty(shape, requires_grad=phase == "train")
        mask = FutureMask(LinearBias(shape[1]), shape[2], shape[2])
        taken = backend_selection.choose("auto", q, q, q, mask, 0.0)
        if milliseconds[taken] > 1.05 * min(milliseconds.values()):
            slower[call] = taken, milliseconds
    assert not slower
    assert {call[-1] for call in measured()} == {16, 32, 64, 128}
    assert len(measured()) == 64


@pytest.mark.parametrize(
    ("method", "queries", "dropout_p", "window", "expected"),
    [
        ("alibi", 512, 0.0, 0, "flash flex fold"),
        ("alibi", 4095, 0.0, 0, "flash flex fold"),
        ("alibi", 4096, 0.0, 0, "skipping flash fold"),
        ("alibi", 512, 0.1, 0, "flash fold"),
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
    assert [r.getMessage() for r in caplog.records] == [
        f"attention backend: {chosen(LONG)} (cpu, float32)"
    ]


REFUSED = {
    "flash": (Call(), 0.0, "flash needs the package flash-attn"),
    "fold": (Call(method="t5"), 0.0, "fold supports no bias other than ALiBi"),
    "skipping": (Call(), 0.1, "skipping has no attention dropout"),
    "flex": (Call(), 0.0, "flex has no backward pass on the CPU"),
}


@pytest.mark.parametrize("backend", list(REFUSED))
def test_unsupported_backend_names_reason_and_alternatives(backend, monkeypatch, caplog):
    """Given on the command line it stops; stored in a checkpoint it is replaced, with one line."""
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    call, dropout_p, reason = REFUSED[backend]
    q, k, v, _ = (x.requires_grad_() for x in call.tensors())
    with pytest.raises(UserInputError, match=reason) as stopped:
        attend(q, k, v, call.mask(), dropout_p, backend=backend, strict=True)
    named = str(stopped.value).split("--attention-backend ")[1].split()[0]
    attend(q, k, v, call.mask(), dropout_p, backend=named, strict=True)
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
    found = flash.attend(q, k, v, call.mask(), 0.1)
    torch.testing.assert_close(found, reference(call)[0], rtol=0, atol=1e-6)
    assert flash_calls[0][0] == 0.1


def test_skipping_with_flash_attention(flash_calls):
    """A call for each group of heads with similar windows, and the values of dense attention."""
    call = Call(length=1500, cached=40, heads=12, batch=1)
    q, k, v, _ = call.tensors()
    slopes = call.bias().slopes(q.device)
    windows = certify(q, k, slopes).windows.amax(dim=0)
    found = flash.attend_within(q, k, v, slopes, windows)
    expected, _ = attend(q, k, v, call.mask(), backend="eager")
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=2e-6)
    limits = [limit for _, limit, _ in flash_calls]
    assert len(limits) < 12
    assert 0 < sorted(limits)[1] < 400
    assert -1 in limits
    assert torch.equal(torch.cat([seen for *_, seen in flash_calls]), slopes)


def test_heads_with_similar_windows_share_call():
    groups = flash.group_heads([60, 120, 500, 2000, 2100, 4000], keys=4000)
    assert groups == [(0, 3, 512), (3, 6, -1)]
    assert flash.group_heads([4000, 60], keys=4000) == [(0, 1, -1), (1, 2, 128)]


def test_flash_rejects_unsupported_calls(monkeypatch):
    good = {"device": torch.device("cuda"), "dtype": torch.bfloat16, "shape": (1, 1, 8, 64)}
    bad = {"device": torch.device("cpu"), "dtype": torch.float32, "shape": (1, 1, 8, 512)}
    calls = [
        (good, Call(**limit)) for limit in ({"padded": True}, {"documents": True}, {"method": "t5"})
    ]
    calls += [({**good, name: value}, Call()) for name, value in bad.items()]
    monkeypatch.setattr(flash, "_kernel", lambda: print)
    refused = [
        flash.unsupported_reason(types.SimpleNamespace(**q), None, None, call.mask(), 0.0)
        for q, call in [(good, Call()), *calls]
    ]
    assert refused[0] is None
    assert all(refused[1:])


def test_skipping_on_gpu_requires_kernel(monkeypatch):
    says = {}
    for module in (flash, flex):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, "unsupported_reason", lambda *call, name=name: says.get(name))

    def reason(device: str) -> str | None:
        q = types.SimpleNamespace(device=torch.device(device))
        return skipping.unsupported_reason(q, q, q, Call().mask(), 0.0)

    assert reason("cuda") is None
    says["flash"] = "flash does not"
    assert reason("cuda") is None
    says["flex"] = "flex does not"
    assert reason("cuda") == "skipping uses flex on a GPU, and flex does not"
    assert reason("cpu") is None
