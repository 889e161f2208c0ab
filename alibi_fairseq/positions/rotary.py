"""Rotary position embeddings.

Paper: Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864.

Formula: in every layer, features i and i + D/2 of each query and key head are rotated as a pair by
the angle p·θ^(−2i/D) at position p. A score then depends only on the distance between the two
positions. The base θ is 10000 (``rotary_base``).
Layout: as in GPT-NeoX, pair i is (x_i, x_{i + D/2}). The paper pairs neighbors, (x_2i, x_{2i+1}).
The layouts differ by a fixed permutation of the features, which the learned projections absorb.
Weights trained with one layout must be permuted for the other.
Cost: no parameters, and four multiplications per feature of each query and key in every layer.
Past the training length: perplexity is best a few hundred tokens past it, then rises (ALiBi paper,
Tables 2-4).

Two options leave features without a position:

- ``rotary_percent`` P (GPT-NeoX, Black et al. 2022, https://arxiv.org/abs/2204.06745), a fraction
  despite its name: the first r = ⌊P·D⌋ features rotate as a head of size r; the others are not
  rotated.
- ``p_rope`` P (Barbero et al. 2024, https://arxiv.org/abs/2410.06205): of the pairs (i, i + D/2),
  the ⌊P·D/2⌋ fastest keep their frequencies, and the others get frequency 0.

``rotary_scaling`` slows the rotation for longer input, see ``rotary_frequencies.py``. With
``dynamic`` and ``longrope``, the rotation depends on the input length. As with ALiBi's ``dynamic``,
a cached key keeps the rotation of an earlier length. Past the training length, incremental decoding
therefore differs from a single pass. With the other scalings, both are equal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import UserInputError
from ..options import option
from .base import PositionConfig, PositionMethod, Rotation
from .options import RotaryScaling, above_one, fraction, read_factors, read_rotary_scaling
from .rotary_frequencies import BASE, pair_frequencies, scaled_frequencies


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


@dataclass(frozen=True)
class RotaryOptions:
    """Options of rotary positions."""

    rotary_base: float = option(
        "base of the frequencies, base^(-2i/features)", BASE, parse=above_one
    )
    rotary_percent: float = option(
        "fraction of the features of each head that rotate, the first ones", 1.0, parse=fraction
    )
    p_rope: float = option(
        "fraction of the pairs of features that rotate, the fastest ones (p-RoPE)",
        1.0,
        parse=fraction,
    )
    rotary_scaling: RotaryScaling | None = option(
        "slow the rotation down past the training length: pi, ntk, yarn, llama3, or longrope with "
        "a factor or, except for longrope, 'dynamic' (yarn:4, ntk:dynamic) and, when you "
        "continue a trained model, its earlier training length (yarn:4:512)",
        "none",
        parse=read_rotary_scaling,
    )
    longrope_short_factors: tuple[float, ...] = option(
        "with --rotary-scaling longrope, divisor of each frequency up to the training length, "
        "separated by commas",
        "none",
        parse=read_factors,
    )
    longrope_long_factors: tuple[float, ...] = option(
        "the same for texts past the training length", "none", parse=read_factors
    )


class Rotary(PositionMethod):
    """Rotary positions, which rotate the queries and keys of every layer."""

    Options = RotaryOptions
    options: RotaryOptions

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        check_rotary_options(self.options, config)
        self.features = int(config.head_dim * self.options.rotary_percent)
        self.scaling = complete_scaling(self.options, config, self.features // 2)
        self.depends_on_key_count = self.scaling is not None and self.scaling.depends_on_key_count

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        positions = torch.arange(start, start + length, dtype=torch.float32, device=device)
        frequencies, magnitude = self.frequencies(start + length, device)
        angles = positions[:, None] * frequencies  # (T, r/2)
        cos = angles.cos() * magnitude
        sin = angles.sin() * magnitude
        return lambda q, k: (apply_rotary(q, cos, sin), apply_rotary(k, cos, sin))

    def frequencies(self, num_keys: int, device: torch.device) -> tuple[Tensor, float]:
        """Return the frequencies, (r/2,), at ``num_keys`` tokens, and the magnitude of q and k."""
        base = self.options.rotary_base
        magnitude = 1.0
        if self.scaling is None:
            frequencies = pair_frequencies(self.features, device, base)
        else:
            frequencies, magnitude = scaled_frequencies(
                self.scaling, num_keys, self.features, device, base
            )
        if self.options.p_rope < 1:
            frequencies[int(self.options.p_rope * self.features // 2) :] = 0
        return frequencies, magnitude


def check_rotary_options(options: RotaryOptions, config: PositionConfig) -> None:
    """Raise UserInputError if options do not suit the head size or one another."""
    features = int(config.head_dim * options.rotary_percent)
    if features % 2 or features == 0:
        raise UserInputError(
            f"--rotary-percent {options.rotary_percent} rotates {features} of the "
            f"{config.head_dim} features of a head. Choose a fraction that gives an even number "
            "above 0, or another number of heads."
        )
    if options.p_rope == 1:
        return
    scaling = options.rotary_scaling
    conflict = ""
    if options.rotary_percent < 1:
        conflict = "--rotary-percent"
    elif scaling is not None and scaling.kind != "pi":
        conflict = f"--rotary-scaling {scaling.kind}"
    if conflict:
        raise UserInputError(f"--p-rope cannot be combined with {conflict}. Remove one of the two.")


def complete_scaling(
    options: RotaryOptions, config: PositionConfig, pairs: int
) -> RotaryScaling | None:
    """Return the scaling with its original length, and with the divisors of ``longrope``.

    Without an original length in the option, it is the training length.

    Raises:
        UserInputError: there are divisors without ``longrope``, or not one for each pair.
    """
    scaling = options.rotary_scaling
    lists = {
        "--longrope-short-factors": options.longrope_short_factors,
        "--longrope-long-factors": options.longrope_long_factors,
    }
    needs_lists = scaling is not None and scaling.kind == "longrope"
    expected = pairs if needs_lists else 0
    for flag, divisors in lists.items():
        if len(divisors) != expected:
            raise UserInputError(
                f"{flag} has {len(divisors)} numbers. --rotary-scaling longrope needs {pairs}, one "
                "for each pair of rotated features, and any other needs none."
            )
    if scaling is None:
        return None
    return replace(
        scaling,
        original_length=scaling.original_length or config.train_length,
        short_factors=options.longrope_short_factors,
        long_factors=options.longrope_long_factors,
    )
