"""Attention of one layer on random queries, keys, and values.

Shapes: B batch, H heads, T tokens, D head size, C model width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..attention import BACKENDS, FutureMask, attend
from ..positions import PendingBias, PositionMethod, compute_features, feature_bias
from .candidate import HEAD_DIM, HEADS, Candidate

BATCH = 2


@dataclass(frozen=True)
class AttentionCall:
    """Attention of one layer.

    Attributes:
        method: position method of the layer.
        number: index of the layer among those with that method.
        q, k, v, output_gradient: (B, H, T, D).
        x: (T, B, C), input of the layer's attention, for features of the tokens.
    """

    method: PositionMethod
    number: int
    q: Tensor
    k: Tensor
    v: Tensor
    output_gradient: Tensor
    x: Tensor

    @property
    def length(self) -> int:
        return self.q.shape[2]

    def mask(self) -> FutureMask:
        """Return the causal mask with the bias of the layer."""
        bias = self.method.bias(self.number, self.length)
        if isinstance(bias, PendingBias):
            features = compute_features(self.method, self.number, self.x, None)
            bias = feature_bias(self.method, self.number, features)
        return FutureMask(bias, self.length, self.length)

    def unsupported_reason(self, backend: str, training: bool) -> str | None:
        """Return the reason that a backend does not support this call, or None."""
        with torch.set_grad_enabled(training):
            q, k, v = self._inputs(training)
            return BACKENDS[backend].unsupported_reason(q, k, v, self.mask(), dropout_p=0.0)

    def attend(self, backend: str, training: bool) -> list[Tensor]:
        """Return the output, and in training the gradients of queries, keys, and values."""
        with torch.set_grad_enabled(training):
            inputs = self._inputs(training)
            q, k, v = inputs
            output, _ = attend(q, k, v, self.mask(), backend=backend, strict=True)
            if not training:
                return [output]
            gradients = torch.autograd.grad(output, inputs, self.output_gradient)
        return [output.detach(), *gradients]

    def _inputs(self, training: bool) -> list[Tensor]:
        return [x.detach().requires_grad_(training) for x in (self.q, self.k, self.v)]


def attention_calls(candidate: Candidate) -> Iterator[AttentionCall]:
    """Yield a call for every layer of the candidate's model."""
    decoder = candidate.model.decoder
    device = candidate.device
    length = candidate.length
    for layer in range(len(decoder.attention_windows)):
        method, number = decoder.embed_positions.layer_method(layer)
        q, k, v, gradient = torch.randn(4, BATCH, HEADS, length, HEAD_DIM, device=device)
        x = torch.randn(length, BATCH, HEADS * HEAD_DIM, device=device)
        yield AttentionCall(method, number, q, k, v, gradient, x)
