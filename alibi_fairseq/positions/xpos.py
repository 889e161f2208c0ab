"""xPos: rotary embeddings whose feature pairs decay with distance.

Paper: Sun et al. 2022, https://arxiv.org/abs/2212.10554, section 2. The unit of 512 positions is
taken from the authors' code (torchscale).

Formula: rotary with scaled pairs. Pair t of a query at position i is scaled by z_t^(i/512), and of
a key at position j by z_t^(−j/512), with z_t = (2t/D + 0.4)/1.4. A score is then
Σ_t z_t^((i−j)/512)·(…). The layout of pairs is the same as in ``rotary.py``.
Cost: as for rotary.
Past the training length: extrapolates better than rotary (Table 2 of its paper, which also
restricts attention to blocks there; this implementation does not).

Keys grow with their position, since a cached key is never rescaled. They overflow fp16 near
position 2,500 and bf16 or fp32 near 34,000, which raises UserInputError.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import UserInputError
from .base import PositionMethod, Rotation
from .rotary import apply_rotary
from .rotary_frequencies import pair_frequencies

UNIT = 512
FASTEST_DECAY = 0.4 / 1.4  # z of pair 0


def pair_scales(head_dim: int, device: torch.device | None = None) -> Tensor:
    """Return the fp32 factor z of each pair of features per 512 positions, (D/2,)."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    return (pairs + 0.4) / 1.4


def last_position(dtype: torch.dtype) -> int:
    """Return the last position at which keys of magnitude up to 64 stay finite in a dtype."""
    largest = torch.finfo(dtype).max / (2 * 64)  # a rotation scales a feature by up to √2
    return int(UNIT * math.log(largest) / -math.log(FASTEST_DECAY))


class XPos(PositionMethod):
    """xPos, over the full head size."""

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        positions = torch.arange(start, start + length, dtype=torch.float32, device=device)
        angles = positions[:, None] * pair_frequencies(self.config.head_dim, device)  # (T, D/2)
        scales = pair_scales(self.config.head_dim, device) ** (positions[:, None] / UNIT)
        cos = angles.cos()
        sin = angles.sin()

        def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            if start + length - 1 > last_position(k.dtype):
                raise UserInputError(
                    f"Position method 'xpos' is limited to position {last_position(k.dtype)} in "
                    f"{k.dtype}, but there are {start + length} tokens. Use fewer"
                    + (" or bf16." if k.dtype == torch.float16 else ".")
                )
            q = apply_rotary(q, cos * scales, sin * scales)
            return q, apply_rotary(k, cos / scales, sin / scales)

        return rotate
