"""How far the heads of ALiBi see, and four ways to see further.

Paper: Schröder et al. 2026, "When Attention Goes Blind", https://arxiv.org/abs/2608.03994. A head
with slope m is blind from the distance d on at which e^(−m·d) is no positive number of the type of
the weights, which is −m·d < −92.18 in bf16. A key whose score without bias is larger by s is seen
s/m tokens further.

Only the abstract of the paper and a published summary could be read, which give the threshold and
one sentence about each remedy. The formulas are our reading of these sentences:

- log distances: −m·ln(1 + d)
- clamp: max(−m·d, −C)
- even slopes: head h of H is blind from h·L/H tokens on in bf16, for a training length of L tokens
- capped scores: C·tanh(s/C), where s = q·k/√D − m·d includes the bias, since that is what
  underflows

They can be combined. All of them cost what a bias without a fast kernel costs, except for the
slopes: only a linear bias can be folded or skipped (:mod:`..attention.skipping`). Capped scores are
computed twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import RelativeBias, ScoreBias


def underflow_threshold(dtype: torch.dtype) -> float:
    """Return the logarithm of the smallest positive number of a type, such as −92.18 for bf16."""
    limits = torch.finfo(dtype)
    return math.log(limits.smallest_normal) + math.log(limits.eps)


def blind_distance(slope: float, dtype: torch.dtype) -> int:
    """Return the first distance at which the bias of a head is below :func:`underflow_threshold`.

    Args:
        slope: slope of the head, > 0.
        dtype: type of the attention weights.
    """
    return math.floor(-underflow_threshold(dtype) / slope) + 1


def even_slopes(num_heads: int, context: int) -> tuple[float, ...]:
    """Return slopes whose heads go blind at evenly spaced distances in bf16.

    Args:
        num_heads: number of heads H.
        context: tokens from which on the last head is blind.
    """
    threshold = -underflow_threshold(torch.bfloat16)
    return tuple(threshold * num_heads / (head * context) for head in range(1, num_heads + 1))


@dataclass(frozen=True)
class BentBias(RelativeBias):
    """A linear bias of the logarithm of the distance, or with a smallest value, or both.

    Attributes:
        linear: bias that is proportional to the distance.
        logarithmic: True to replace the distance d by ln(1 + d).
        clamp: C > 0, the bias is at least −C; None: no limit.
    """

    linear: RelativeBias
    logarithmic: bool
    clamp: float | None

    @property
    def needs_grad(self) -> bool:  # type: ignore[override]
        """True if the slopes are trained."""
        return self.linear.needs_grad

    def at(self, distance: Tensor) -> Tensor:
        bias = self.linear.at(torch.log1p(distance) if self.logarithmic else distance)
        return bias if self.clamp is None else bias.clamp(min=-self.clamp)


@dataclass(frozen=True)
class CappedBias(ScoreBias):
    """Term that caps the sum of the score and another bias: C·tanh((s + bias)/C) − s.

    Attributes:
        inner: the other bias.
        cap: C.
    """

    inner: RelativeBias
    cap: float

    needs_grad = True  # of the queries and keys

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        precise = torch.promote_types(q.dtype, torch.float32)
        scaled = q.to(precise) * q.shape[-1] ** -0.5
        scores = scaled @ k.to(precise).transpose(2, 3)  # (B, H, n, K)
        positions = torch.arange(k.shape[2], device=q.device)
        query_positions = positions[first_position : first_position + q.shape[2]]
        distance = (query_positions[:, None] - positions).clamp(min=0)  # (n, K)
        bias = self.inner.at(distance)  # (H, n, K)
        return self.cap * torch.tanh((scores + bias) / self.cap) - scores
