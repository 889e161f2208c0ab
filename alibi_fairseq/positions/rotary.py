"""Rotary position embeddings.

Paper: Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864.

Formula: in every layer, features i and i + D/2 of each query and key head are rotated as a pair by
the angle p·10000^(−2i/D), so that a score depends only on the distance of the two positions.
Layout: GPT-NeoX's, where pair i is (x_i, x_{i + D/2}). The paper pairs neighbours, (x_2i, x_{2i+1}).
The two differ by a fixed permutation of the features, which the learned projections absorb; weights
trained with one layout must be permuted for the other.
Cost: no parameters; four multiplications per feature of each query and key, in every layer.
Past the training length: perplexity is best a few hundred tokens past it, then rises (ALiBi paper,
Tables 2-4).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import BadInput
from .base import PositionConfig, PositionMethod, Rotation

BASE = 10000.0


def pair_frequencies(head_dim: int, device: torch.device | None = None) -> Tensor:
    """(D/2,) fp32 angle per position of each pair of features."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    return 1.0 / BASE**exponents


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x_i, x_{i + D/2}).

    Args:
        x: (B, H, T, D).
        cos, sin: (T, D/2) in fp32.

    Returns:
        (B, H, T, D) in the dtype of x, computed in at least fp32.
    """
    first, second = x.to(torch.promote_types(x.dtype, cos.dtype)).chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return rotated.to(x.dtype)


class Rotary(PositionMethod):
    """Acts on the queries and keys of every layer, over the full head size."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        check_even_head_dim(config, "rotary")

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        positions = torch.arange(start, start + length, dtype=torch.float32, device=device)
        angles = positions[:, None] * pair_frequencies(self.config.head_dim, device)  # (T, D/2)
        cos, sin = angles.cos(), angles.sin()
        return lambda q, k: (apply_rotary(q, cos, sin), apply_rotary(k, cos, sin))


def check_even_head_dim(config: PositionConfig, name: str) -> None:
    """Raises BadInput if the head size is odd."""
    if config.head_dim % 2:
        raise BadInput(
            f"Position method '{name}' rotates pairs of features and needs an even head size; "
            f"width {config.embed_dim} over {config.num_heads} heads gives {config.head_dim}. "
            "Change --decoder-embed-dim or --decoder-attention-heads."
        )
