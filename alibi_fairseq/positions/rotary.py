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

``rotary_scaling`` slows the rotation down, so that a text F times as long as those of training meets
angles that were seen there; meant for evaluation, and for continuing a model at a longer length:

- ``pi``, position interpolation (Chen et al. 2023, https://arxiv.org/abs/2306.15595): all frequencies are
  divided by F.
- ``ntk`` (bloc97 2023, "NTK-aware scaled RoPE"): the base is multiplied by F^(D/(D − 2)), which divides
  the slowest frequency by F and leaves the fastest as it is.
- ``yarn`` (Peng et al. 2023, https://arxiv.org/abs/2309.00071): a pair that turns more than 32 times in
  the training length L keeps its frequency, one that turns less than once is divided by F, and those
  between are mixed linearly by their number; queries and keys are multiplied by 0.1·ln F + 1.

F is a number ≥ 1, or ``dynamic`` for max(1, S / L) in every forward pass. As with ALiBi's ``dynamic``, a
cached key keeps the rotation of the length it was computed at, so past L incremental decoding differs
from one pass over the whole text; with a number it does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import BadInput
from .base import PositionConfig, PositionMethod, Rotation

BASE = 10000.0
SCALINGS = ("pi", "ntk", "yarn")
#: Turns in the training length from which on YaRN keeps a frequency, and up to which it divides it.
MANY_TURNS, FEW_TURNS = 32, 1


def pair_frequencies(
    head_dim: int, device: torch.device | None = None, base: float = BASE
) -> Tensor:
    """(D/2,) fp32 angle per position of each pair of features."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=device) / head_dim
    return 1.0 / base**exponents


@dataclass(frozen=True)
class Scaling:
    """Rotation slowed down for a longer text.

    Attributes:
        kind: one of ``SCALINGS``.
        factor: F, or None for the ratio of the lengths.
        length: L, tokens of the texts that the unscaled rotation was trained on.
    """

    kind: str
    factor: float | None
    length: int

    def at(self, keys: int, head_dim: int, device: torch.device) -> tuple[Tensor, float]:
        """(D/2,) frequencies for a text of ``keys`` tokens, and the factor of queries and keys."""
        factor = max(1.0, keys / self.length) if self.factor is None else self.factor
        plain = pair_frequencies(head_dim, device)
        if self.kind == "pi":
            return plain / factor, 1.0
        if self.kind == "ntk":
            base = BASE * factor ** (head_dim / max(head_dim - 2, 1))
            return pair_frequencies(head_dim, device, base), 1.0
        low = max(math.floor(self._pair_that_turns(MANY_TURNS, head_dim)), 0)
        high = min(math.ceil(self._pair_that_turns(FEW_TURNS, head_dim)), head_dim - 1)
        pairs = torch.arange(head_dim // 2, dtype=torch.float32, device=device)
        divided = ((pairs - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        return plain / factor * divided + plain * (1 - divided), 0.1 * math.log(factor) + 1

    def _pair_that_turns(self, times: int, head_dim: int) -> float:
        """The pair, with a fraction, that turns so many times in the training length."""
        turned = math.log(self.length / (times * 2 * math.pi)) / math.log(BASE)
        return head_dim * turned / 2


def parse_scaling(given: str, train_length: int) -> Scaling | None:
    """The scaling that ``rotary_scaling`` asks for; None for ``none``.

    Raises:
        BadInput: if it is not of the form KIND:FACTOR or KIND:FACTOR:LENGTH.
    """
    if given == "none":
        return None
    kind, _, rest = given.partition(":")
    number, _, length = rest.partition(":")
    try:
        factor = None if number == "dynamic" else float(number)
        tokens = int(length or train_length)
    except ValueError:
        factor, tokens = 0.0, 0
    right = factor is None or (factor >= 1 and math.isfinite(factor))
    if kind not in SCALINGS or not right or tokens < 1:
        raise BadInput(
            f"--rotary-scaling must be none, or {', '.join(SCALINGS[:-1])} or {SCALINGS[-1]} with a "
            f"factor of at least 1 or 'dynamic', such as yarn:4 or ntk:dynamic, not '{given}'; the "
            "length trained at before can follow (yarn:4:512)."
        )
    return Scaling(kind, factor, tokens)


def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x_i, x_{i + D/2}) of x (B, H, T, D), in at least fp32; cos, sin: (T, D/2)."""
    first, second = x.to(torch.promote_types(x.dtype, cos.dtype)).chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    return rotated.to(x.dtype)


class Rotary(PositionMethod):
    """Acts on the queries and keys of every layer, over the full head size."""

    options = ("rotary_scaling",)

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        check_even_head_dim(config, "rotary")
        self._scaling = parse_scaling(config.rotary_scaling, config.train_length)
        self.depends_on_key_count = self._scaling is not None and self._scaling.factor is None

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        positions = torch.arange(start, start + length, dtype=torch.float32, device=device)
        frequencies, size = pair_frequencies(self.config.head_dim, device), 1.0
        if self._scaling is not None:
            frequencies, size = self._scaling.at(start + length, self.config.head_dim, device)
        angles = positions[:, None] * frequencies  # (T, D/2)
        cos, sin = angles.cos() * size, angles.sin() * size
        return lambda q, k: (apply_rotary(q, cos, sin), apply_rotary(k, cos, sin))


def check_even_head_dim(config: PositionConfig, name: str) -> None:
    """Raises BadInput if the head size is odd."""
    if config.head_dim % 2:
        raise BadInput(
            f"Position method '{name}' rotates pairs of features and needs an even head size; "
            f"width {config.embed_dim} over {config.num_heads} heads gives {config.head_dim}. "
            "Change --decoder-embed-dim or --decoder-attention-heads."
        )
