"""Rotary position embeddings.

Paper: Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864.

Formula: in every layer, features i and i + D/2 of each query and key head are rotated as a pair by
the angle p·θ^(−2i/D). A score then depends only on the distance between the two positions. The base
θ is 10000 (``rotary_base``).
Layout: as in GPT-NeoX, pair i is (x_i, x_{i + D/2}). The paper pairs neighbors, (x_2i, x_{2i+1}).
The layouts differ by a fixed permutation of the features, which the learned projections absorb.
Weights trained with one layout must be permuted for the other.
Cost: no parameters, and four multiplications per feature of each query and key in every layer.
Past the training length: perplexity is best a few hundred tokens past it, then rises (ALiBi paper,
Tables 2-4).

Two options leave features without a position:

- ``rotary_percent`` P (GPT-NeoX, Black et al. 2022, https://arxiv.org/abs/2204.06745): the first
  r = ⌊P·D⌋ features rotate as a head of size r; the others are not rotated.
- ``p_rope`` P (Barbero et al. 2024, https://arxiv.org/abs/2410.06205): of the pairs (i, i + D/2),
  the ⌊P·D/2⌋ fastest keep their frequencies, and the others get frequency 0.

``rotary_scaling`` slows the rotation for longer input, see ``rotary_frequencies.py``. With
``dynamic`` and ``longrope``, the rotation depends on the input length. As with ALiBi's ``dynamic``,
a cached key keeps the rotation of an earlier length. Past L, incremental decoding therefore differs
from a single pass. With the other scalings, both are equal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import UserInputError
from .base import PositionConfig, PositionMethod, Rotation
from .rotary_frequencies import pair_frequencies, parse_scaling


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x_i, x_{i + r/2}) of the first r features, in at least fp32.

    Args:
        x: (B, H, T, D), r ≤ D.
        cos, sin: (T, r/2).
    """
    features = 2 * cos.shape[-1]
    rotated = x if features == x.shape[-1] else x[..., :features]
    first, second = rotated.to(torch.promote_types(x.dtype, cos.dtype)).chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    rotated = rotated.to(x.dtype)
    if features == x.shape[-1]:
        return rotated
    return torch.cat([rotated, x[..., features:]], dim=-1)


class Rotary(PositionMethod):
    """Rotary positions, which rotate the queries and keys of every layer."""

    options = (
        "rotary_base",
        "rotary_percent",
        "p_rope",
        "rotary_scaling",
        "longrope_short_factors",
        "longrope_long_factors",
    )

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        check_even_head_dim(config, "rotary")
        check_rotary_options(config)
        self.features = int(config.head_dim * config.rotary_percent)
        self.scaling = parse_scaling(config, self.features)
        self.depends_on_key_count = self.scaling is not None and self.scaling.depends_on_key_count

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        positions = torch.arange(start, start + length, dtype=torch.float32, device=device)
        frequencies, size = self.frequencies(start + length, device)
        angles = positions[:, None] * frequencies  # (T, r/2)
        cos = angles.cos() * size
        sin = angles.sin() * size
        return lambda q, k: (apply_rotary(q, cos, sin), apply_rotary(k, cos, sin))

    def frequencies(self, keys: int, device: torch.device) -> tuple[Tensor, float]:
        """Return the frequencies, (r/2,), at ``keys`` tokens, and the factor of q and k."""
        base = self.config.rotary_base
        size = 1.0
        if self.scaling is None:
            frequencies = pair_frequencies(self.features, device, base)
        else:
            frequencies, size = self.scaling.at(keys, self.features, device, base)
        if self.config.p_rope < 1:
            frequencies[int(self.config.p_rope * self.features // 2) :] = 0
        return frequencies, size


def check_rotary_options(config: PositionConfig) -> None:
    """Raise UserInputError if an option is out of range, or two cannot be combined."""
    if not 1 < config.rotary_base < math.inf:
        raise UserInputError(f"--rotary-base must be a number above 1, not {config.rotary_base}.")
    for option in ("rotary_percent", "p_rope"):
        given = getattr(config, option)
        if not 0 < given <= 1:
            flag = "--" + option.replace("_", "-")
            raise UserInputError(f"{flag} must be a fraction above 0 and at most 1, not {given}.")
    features = int(config.head_dim * config.rotary_percent)
    if features % 2 or features == 0:
        raise UserInputError(
            f"--rotary-percent {config.rotary_percent} rotates {features} of the {config.head_dim} "
            "features of a head. Choose a fraction that gives an even number above 0."
        )
    if int(config.p_rope * config.head_dim // 2) == 0:
        raise UserInputError(
            f"--p-rope {config.p_rope} rotates none of the {config.head_dim // 2} pairs of "
            "features of a head. Choose a larger fraction, or --position-method none."
        )
    kind = config.rotary_scaling.partition(":")[0]
    if config.p_rope < 1 and (config.rotary_percent < 1 or kind not in ("none", "pi")):
        conflict = "--rotary-percent" if config.rotary_percent < 1 else f"--rotary-scaling {kind}"
        raise UserInputError(f"--p-rope cannot be combined with {conflict}. Drop one of the two.")


def check_even_head_dim(config: PositionConfig, name: str) -> None:
    """Raise UserInputError if the head size is odd."""
    if config.head_dim % 2:
        raise UserInputError(
            f"Position method '{name}' rotates pairs of features and needs an even head size; "
            f"width {config.embed_dim} over {config.num_heads} heads gives {config.head_dim}. "
            "Change --decoder-embed-dim or --decoder-attention-heads."
        )
