"""Sandwich: the inner product of two sinusoidal embeddings as a bias.

Paper: Chi et al. 2023, https://arxiv.org/abs/2212.10356, section 5 and appendix A.

Formula: softmax(q_i·k_j/√D + (H / 8h)·Σ_w cos((i − j)·w)), head h = 1 … H, over the 64 frequencies
w = 10000^(−2t/128), t = 0 … 63. The sum is the inner product of the 128 sinusoidal features of i
and j. The code subtracts 1 from each cosine, so that the bias is 0 at distance 0. Softmax is
invariant to this constant, and half precision would round the bias of up to 8·H by whole steps.
Cost: no parameters, and 64 cosines per distance.
Past the training length: extrapolates. The decay with distance is close to logarithmic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import PositionMethod, RelativeBias

#: Number of sinusoidal features, d̄ in the paper, which recommends this value.
FEATURES = 128


@dataclass(frozen=True)
class SandwichBias(RelativeBias):
    """Bias (H / 8h)·Σ_w (cos(distance·w) − 1) of head h = 1 … H.

    Attributes:
        num_heads: number of heads H.
    """

    num_heads: int

    def at(self, distance: Tensor) -> Tensor:
        steps = torch.arange(0, FEATURES, 2, device=distance.device) / FEATURES
        angles = distance.unsqueeze(-1) * 10000.0**-steps  # (*distance.shape, 64)
        product = (angles.cos() - 1).sum(-1)
        heads = torch.arange(1, self.num_heads + 1, device=distance.device)
        strength = self.num_heads / (8.0 * heads)  # (H,)
        return strength.view(-1, *[1] * distance.dim()) * product


class Sandwich(PositionMethod):
    """Sandwich, with one score bias shared by all layers."""

    def bias(self, layer: int, num_keys: int) -> SandwichBias:
        return SandwichBias(self.config.num_heads)
