"""Sinusoidal position embeddings, with fairseq's values.

Paper: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5.

Formula: the first half of the C features is sin(p·w), the second half cos(p·w), with
w_i = 10000^(−i/(C/2 − 1)). fairseq concatenates the halves, which the paper interleaves, and counts
p from padding_idx + 1. Padding gets zeros.
Cost: no parameters, and one addition per token, computed once per forward pass.
Past the training length: defined at any length, but perplexity rises within tens of tokens (ALiBi
paper, Tables 2-4).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import PositionMethod


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Return the fp32 features of positions.

    Args:
        positions: integers of any shape (...).
        width: number of features C ≥ 4. The last feature of an odd C is zero.

    Returns:
        (..., C).
    """
    half = width // 2
    step = math.log(10000) / (half - 1)
    frequencies = torch.exp(
        torch.arange(half, dtype=torch.float32, device=positions.device) * -step
    )
    angles = positions.unsqueeze(-1).float() * frequencies  # (..., C/2)
    features = torch.cat([angles.sin(), angles.cos()], dim=-1)  # (..., C)
    return torch.nn.functional.pad(features, (0, width % 2))


class Sinusoidal(PositionMethod):
    """Sinusoidal positions, which are added to the token embeddings."""

    def embed(self, positions: Tensor) -> Tensor:
        features = sinusoids(positions + self.config.padding_idx + 1, self.config.embed_dim)
        return features * (positions >= 0).unsqueeze(-1)  # (B, T, C)
