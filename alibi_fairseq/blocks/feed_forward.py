"""Gated feed-forward networks.

SwiGLU computes W₂·(SiLU(gate) · up), where gate and up are two projections of the input (Shazeer
2020, https://arxiv.org/abs/2002.05202). Its three matrices have as many weights as the two of a
plain network if the inner width is two thirds as large.
"""

from __future__ import annotations

from torch import Tensor, nn

#: Values of ``--ffn``.
FEED_FORWARDS = ("mlp", "swiglu")


def swiglu(x: Tensor) -> Tensor:
    """Return SiLU(gate) · up, (…, F), of one projection (…, 2·F) that holds gate, then up."""
    gate, up = x.chunk(2, dim=-1)
    return nn.functional.silu(gate) * up
