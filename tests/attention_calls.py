"""Calls that every backend is tried on, and the reference they are compared with.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import GateBias, PositionConfig, build_position_method

#: Where documents begin in each sequence: short, long, at and off the edges of blocks.
DOCUMENTS = ([0, 1, 5, 128, 300], [0, 70, 257])


@dataclass(frozen=True)
class Call:
    """Arguments of one call; ``length`` queries behind ``cached`` keys."""

    method: str = "alibi"
    batch: int = 2
    heads: int = 8
    length: int = 300
    cached: int = 0
    width: int = 16
    size: float = 1.0
    padded: bool = False
    documents: bool = False
    dtype: torch.dtype = torch.float32

    def bias(self):
        config = PositionConfig(
            embed_dim=self.heads * self.width, num_heads=self.heads, num_layers=2, train_length=32
        )
        method, keys = build_position_method(self.method, config), self.length + self.cached
        generator = torch.Generator().manual_seed(7)
        for parameter in method.parameters():
            if not parameter.any():  # a bias that starts at zero would hide mistakes
                parameter.data.normal_(std=0.5, generator=generator)
        gates = method.gate(0, torch.randn(keys, self.batch, config.embed_dim, generator=generator))
        if gates is not None:
            return GateBias(gates.detach().double().cumsum(2))
        return method.bias(0, keys)

    def mask(self, window: int = 0) -> FutureMask:
        keys = self.length + self.cached
        padding = None
        if self.padded:
            padding = torch.zeros(self.batch, keys, dtype=torch.bool)
            padding[0, : keys // 3] = True
        return FutureMask(self.bias(), self.length, keys, padding, window, self.starts())

    def starts(self) -> torch.Tensor | None:
        """(B, S) where the document of each key begins, from the list above."""
        if not self.documents:
            return None
        keys = range(self.length + self.cached)
        rows = [[max(n for n in begin if n <= key) for key in keys] for begin in DOCUMENTS]
        return torch.tensor(rows[: self.batch])

    def tensors(self, seed: int = 0):
        """q (B, H, T, D), k, v (B, H, S, D) and the gradient of the output."""
        generator = torch.Generator().manual_seed(seed)
        keys = self.length + self.cached
        lengths = (self.length, keys, keys, self.length)
        sizes = (self.size, self.size, 1.0, 1.0)
        return [
            (size * torch.randn(self.batch, self.heads, n, self.width, generator=generator)).to(
                self.dtype
            )
            for n, size in zip(lengths, sizes)
        ]


def results(call: Call, backend: str, mask: FutureMask | None = None, dropout_p: float = 0.0):
    """Output and the gradients of q, k and v, in float64."""
    q, k, v, grad = call.tensors()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out, _ = attend(
        *inputs, call.mask() if mask is None else mask, dropout_p, backend=backend, strict=True
    )
    grads = torch.autograd.grad(out, inputs, grad)
    return [x.detach().double() for x in (out, *grads)]


def assert_close(found, expected, tolerance: float):
    """Largest difference, in units of the largest expected value, of each tensor."""
    for name, a, b in zip(("output", "dq", "dk", "dv"), found, expected, strict=True):
        assert a.shape == b.shape
        error = (a - b).abs().max() / b.abs().max().clamp(min=1e-30)
        assert error < tolerance, f"{name} is off by {error:.1e}"


def assert_same_gradients(found, expected, inputs, exact=None, tolerance: float = 1e-5):
    """Gradients of both by their inputs, in a random direction.

    Differences are relative to the largest value of each gradient, or to a hundredth of the largest
    of all: that of a bias of the keys is zero but for rounding.
    """
    direction = torch.randn(expected.shape, dtype=torch.float64)
    exact = inputs if exact is None else exact
    ours, theirs = (
        [
            g.double()
            for g in torch.autograd.grad((y * direction.to(y)).sum(), xs, retain_graph=True)
        ]
        for y, xs in ((found, inputs), (expected, exact))
    )
    largest = max(gradient.abs().max() for gradient in theirs)
    for one, other in zip(ours, theirs, strict=True):
        error = (one - other).abs().max() / other.abs().max().clamp(min=largest / 100)
        assert error < tolerance, f"gradients differ by {error:.1e}"
