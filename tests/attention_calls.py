"""Attention calls that every backend computes, and the formula for comparison.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.positions import (
    PendingBias,
    PositionConfig,
    QueryPositionBias,
    RelativeBias,
    build_position_method,
    compute_features,
)
from alibi_fairseq.positions.cope import NUM_POSITIONS as NUM_COUNTS

#: First positions of the documents of each sequence: short, long, at and off block edges.
DOCUMENTS = ([0, 1, 5, 128, 300], [0, 70, 257])
#: CoPE's gradient jumps where a count is a whole number
#: (``test_cope_gradient_jumps_at_whole_counts``), so rounding may change it there. Queries with a
#: count this close to a whole number get no gradient.
WHOLE_COUNT_MARGIN = 1e-4


@dataclass(frozen=True)
class Call:
    """Arguments of one call, with ``length`` queries after ``cached`` keys."""

    method: str = "alibi"
    batch: int = 2
    heads: int = 8
    length: int = 300
    cached: int = 0
    width: int = 16
    size: float = 1.0
    padded: bool = False
    documents: bool = False
    window: int = 0
    dtype: torch.dtype = torch.float32
    device: str = "cpu"

    def __str__(self) -> str:
        parts = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={value}")
        return " ".join(parts) or "plain"

    @property
    def keys(self) -> int:
        return self.length + self.cached

    def bias(self):
        """Return the score bias, with nonzero learned parameters that are equal at every call."""
        width = self.heads * self.width
        generator = torch.Generator().manual_seed(7)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(7)
            config = PositionConfig(width, self.heads, num_layers=2, train_length=32)
            method = build_position_method(self.method, config)
        for parameter in method.parameters():
            if not parameter.any():  # a bias that starts at zero would hide mistakes
                parameter.data.normal_(std=0.5, generator=generator)
        x = torch.randn(self.keys, self.batch, width, generator=generator)
        bias = method.to(self.device).bias(0, self.keys)
        if not isinstance(bias, PendingBias):
            return bias
        with torch.no_grad():
            features = compute_features(method, 0, x.to(self.device), None)
        return method.feature_bias(0, features)

    def mask(self) -> FutureMask:
        padding = None
        if self.padded:
            padding = torch.zeros(self.batch, self.keys, dtype=torch.bool, device=self.device)
            padding[0, : self.keys // 3] = True
        bias = self.bias()
        starts = self.starts()
        return FutureMask(bias, self.length, self.keys, padding, self.window, starts)

    def starts(self) -> torch.Tensor | None:
        """Return the start of each key's document, (B, S), from ``DOCUMENTS``."""
        if not self.documents:
            return None
        rows = []
        for starts in DOCUMENTS[: self.batch]:
            rows.append([max(n for n in starts if n <= key) for key in range(self.keys)])
        return torch.tensor(rows, device=self.device)

    def tensors(self, seed: int = 0):
        """Return q (B, H, T, D), k and v (B, H, S, D), and the gradient of the output."""
        generator = torch.Generator().manual_seed(seed)

        def draw(length: int) -> torch.Tensor:
            return torch.randn(self.batch, self.heads, length, self.width, generator=generator)

        q = (self.size * draw(self.length)).to(self.dtype)
        k = (self.size * draw(self.keys)).to(self.dtype)
        v = draw(self.keys).to(self.dtype)
        grad = draw(self.length).to(self.dtype)
        if self.method == "cope":
            grad = grad.masked_fill(has_whole_count(q, k)[..., None], 0.0)
        return [x.to(self.device) for x in (q, k, v, grad)]


def has_whole_count(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return True (B, H, T) at queries with a CoPE count near a whole number, up to the largest."""
    queries = q.shape[2]
    keys = k.shape[2]
    gates = torch.sigmoid(q.double() @ k.double().mT * q.shape[-1] ** -0.5)  # (B, H, T, S)
    future = torch.ones(queries, keys, dtype=torch.bool).triu(keys - queries + 1)
    gates = gates.masked_fill(future, 0.0)
    counts = gates.flip(-1).cumsum(-1)  # from the query backwards
    near = (counts - counts.round()).abs() < WHOLE_COUNT_MARGIN
    # Future keys count 0, and larger counts are all the largest one, without a jump.
    counted = (counts > 0) & (counts < NUM_COUNTS - 0.5)
    return (near & counted).any(-1)


def supporting(call: Call, dropout_p: float = 0.0) -> set[str]:
    """Return the backends that support a call and its gradients."""
    q, k, v, _ = call.tensors()
    for x in (q, k, v):
        x.requires_grad_(torch.is_grad_enabled())
    arguments = (q, k, v, call.mask(), dropout_p)
    names = set()
    for name, backend in BACKENDS.items():
        if backend.unsupported_reason(*arguments) is None:
            names.add(name)
    return names


def results(call: Call, backend: str, dropout_p: float = 0.0, mask: FutureMask | None = None):
    """Return the output and the gradients of q, k, and v in float64 on the CPU."""
    q, k, v, grad = call.tensors()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out, _ = attend(*inputs, mask or call.mask(), dropout_p, backend=backend, strict=True)
    grads = torch.autograd.grad(out, inputs, grad)
    return [x.detach().double().cpu() for x in (out, *grads)]


@torch.enable_grad()
def reference(call: Call):
    """Return the values of :func:`results` from the formula in float64.

    Inputs are rounded to the dtype of the call.
    """
    call = dataclasses.replace(call, device="cpu")
    q, k, v, grad = [x.double() for x in call.tensors()]
    inputs = [x.requires_grad_() for x in (q, k, v)]
    bias = call.bias()
    keys = torch.arange(call.keys)
    distance = keys[call.cached :, None] - keys  # (T, S)
    hidden = ((distance < 0) | (distance >= (call.window or call.keys))).expand(
        call.batch, 1, -1, -1
    )
    if call.documents:
        hidden = hidden | (keys < call.starts()[:, None, call.cached :, None])
    if call.padded:
        hidden = hidden | (call.mask().key_padding[:, None, None] & (distance != 0))
    scores = q @ k.mT * call.width**-0.5
    if bias is not None:
        scores = scores + all_at_once(bias, q, k, call.cached)
    out = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    return [x.detach() for x in (out, *torch.autograd.grad(out, inputs, grad))]


def all_at_once(bias, q, k, first: int):
    """Return the bias of queries from position ``first`` and all keys, (1 or B, H, T, S)."""
    queries = torch.arange(first, first + q.shape[2], device=q.device)
    distance = (queries[:, None] - torch.arange(k.shape[2], device=q.device)).clamp(min=0)
    if isinstance(bias, RelativeBias):
        return bias.at(distance)[None]
    if isinstance(bias, QueryPositionBias):
        return bias.at(queries[None], distance)
    return bias.block(q, k, first)


def assert_close(actual, expected, tolerance: float):
    """Compare tensors by the largest difference relative to the largest expected value."""
    for name, a, b in zip(("output", "dq", "dk", "dv"), actual, expected):
        assert a.shape == b.shape
        error = (a - b).abs().max() / b.abs().max().clamp(min=1e-3)
        assert error < tolerance, f"{name} is off by {error:.1e}"


def assert_same_gradients(actual, expected, inputs, exact=None, tolerance: float = 1e-5):
    """Compare the gradients of both outputs with respect to their inputs, in a random direction.

    Differences are relative to the largest value of each gradient, or to a hundredth of the largest
    value of all gradients, because the gradient of a key bias is zero except for rounding.
    """
    direction = torch.randn(expected.shape, dtype=torch.float64)

    def gradients_of(output, inputs):
        total = (output * direction.to(output)).sum()
        return [g.double() for g in torch.autograd.grad(total, inputs, retain_graph=True)]

    actual_gradients = gradients_of(actual, inputs)
    expected_gradients = gradients_of(expected, inputs if exact is None else exact)
    largest = max(gradient.abs().max() for gradient in expected_gradients)
    for a, b in zip(actual_gradients, expected_gradients, strict=True):
        error = (a - b).abs().max() / b.abs().max().clamp(min=largest / 100)
        assert error < tolerance, f"gradients differ by {error:.1e}"
