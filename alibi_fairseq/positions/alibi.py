"""ALiBi: attention with linear biases.

Paper: Press, Smith & Lewis 2022, "Train Short, Test Long", https://arxiv.org/abs/2108.12409.

Formula: softmax(q_i·k_j/√D − m_h·(i − j)), with one fixed slope m_h per head. The bias is added to
the scaled scores and is not scaled itself (footnote 10 of the paper).
Cost: no parameters, and one addition per score. Only the H slopes are stored.
Past the training length: extrapolates. On WikiText-103, perplexity improves fast up to about twice
the training length, then slowly. It is best at 3 to 24 times the training length, and constant at
longer lengths (Tables 2-4). At 1.3B parameters it is best near twice the training length, and then
degrades to more than the perplexity at the training length (Figure 6).

Position interpolation (Al-Khateeb et al. 2023, https://arxiv.org/abs/2310.13017) divides the slopes
by L_eval / L_train. The largest bias then remains the one seen in training. ``alibi_scale`` is a
factor, or ``dynamic``: max(1, S / train_length) in every forward pass. S is the number of tokens,
with cached ones and those outside an attention window. With ``dynamic``, a cached token was
computed with the bias of an earlier length. Past the training length, incremental decoding
therefore differs from a single pass. With a fixed factor, both are equal.

``alibi_distance``, ``alibi_clamp``, ``alibi_cap``, and the slopes ``even`` are remedies for the
distances at which weights underflow (:mod:`.alibi_reach`).

``alibi_slopes`` also takes the slopes as numbers, or one of the two variants in section 3 of the
paper:

- trainable, which "did not yield strong extrapolation results" and made training 3% slower
  (footnote 11). The parameters are the logarithms of the slopes, one per head, which keeps the
  slopes positive under any optimizer. Weight decay pulls the logarithms toward 0, and therefore
  the slopes toward 1. They start at the paper's slopes. In training, each layer builds this bias
  separately, in a backend that supports its gradient.
- random, which "worked well in some cases", with high variance. The slopes are drawn from an
  exponential distribution with the mean of the paper's slopes for that number of heads (the paper
  does not report its mean). The draw depends only on the training seed, which is saved with the
  model.

A head with slope 0 has no bias: it treats all distances alike.

The authors' code writes the bias as +m·j, which is equivalent to −m·(i − j) under softmax in exact
arithmetic. In fp16 that form rounds to multiples of whole tokens past position 2048. The relative
form used here is small, and therefore precise, near the query, where most of the attention is.
"""

from __future__ import annotations

import functools
import math
import random
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor, nn

from ..errors import UserInputError
from ..options import option
from .alibi_reach import BentBias, CappedBias, even_slopes
from .base import PositionConfig, PositionMethod, RelativeBias, ScoreBias
from .options import (
    positive_number,
    positive_or_none,
    read_distance,
    read_slope_divisor,
    read_slopes,
    slopes_from_file,
)

#: Largest exponent of the slopes in the paper.
BIAS_MAX = 8.0


def alibi_slopes(num_heads: int, bias_max: float = BIAS_MAX) -> Tensor:
    """Return the slope of each head, equal to the authors' code.

    For a power of two n: 2^(−8/n), 2^(−16/n), … 2^(−8) (paper, section 3), with ``bias_max`` for 8.
    Otherwise: the slopes of the next lower power of two c, followed by every other slope of 2c.
    This is the authors' code and not section 3, whose formula would give 2^(−8/12), 2^(−16/12), …
    for 12 heads. The sequence is not monotone.

    Args:
        num_heads: number of attention heads H ≥ 1.
        bias_max: largest exponent, ``alibi_bias_max`` in llm-foundry.

    Returns:
        (H,) float32 on the CPU.
    """
    return torch.tensor(_slopes(num_heads, bias_max), dtype=torch.float32)


def _slopes(num_heads: int, bias_max: float) -> list[float]:
    lower = 2 ** int(math.log2(num_heads))
    slopes = [2.0 ** (-bias_max * (head + 1) / lower) for head in range(lower)]
    if lower < num_heads:
        slopes += _slopes(2 * lower, bias_max)[0::2][: num_heads - lower]
    return slopes


@functools.lru_cache(maxsize=64)
def _slopes_on(bias: LinearBias, device: torch.device) -> Tensor:
    # Not a buffer of a module, which would be cast by .half(), saved and copied.
    # A later call may train, and autograd cannot save tensors of the inference mode.
    with torch.inference_mode(False):
        if bias.given is None:
            slopes = alibi_slopes(bias.num_heads, bias.bias_max)
        else:
            slopes = torch.tensor(bias.given, dtype=torch.float32)
        return (slopes / bias.divisor).to(device)


@dataclass(frozen=True)
class LinearBias(RelativeBias):
    """Bias −m_h·distance with fp32 slopes.

    Attributes:
        num_heads: number of heads H.
        divisor: divisor of the slopes.
        bias_max: largest exponent of the paper's slopes.
        given: slopes that replace the paper's, one per head.
    """

    num_heads: int
    divisor: float = 1.0
    bias_max: float = BIAS_MAX
    given: tuple[float, ...] | None = None

    def slopes(self, device: torch.device) -> Tensor:  # (H,) fp32
        return _slopes_on(self, device)

    def at(self, distance: Tensor) -> Tensor:
        slopes = self.slopes(distance.device)
        return -slopes.view(-1, *[1] * distance.dim()) * distance  # (H, *distance.shape)


def is_linear(bias: ScoreBias | None) -> TypeGuard[LinearBias]:
    """Return True if a bias is determined by its slopes alone.

    A subclass of :class:`LinearBias` may override ``at``, so the result is False for it.
    """
    return type(bias) is LinearBias


@dataclass(frozen=True)
class TrainableLinearBias(RelativeBias):
    """Bias −m_h·distance with a gradient for the slopes.

    Attributes:
        alibi: module with the logarithms of the slopes, (H,). The tensor itself is not an
            attribute, since biases are compared, and Python 3.13 would compare tensors.
        divisor: divisor of the slopes.
    """

    alibi: Alibi
    divisor: float = 1.0

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        assert self.alibi.log_slopes is not None
        slopes = self.alibi.log_slopes.float().exp() / self.divisor
        return -slopes.view(-1, *[1] * distance.dim()) * distance  # (H, *distance.shape)


@dataclass(frozen=True)
class AlibiOptions:
    """Options of ALiBi. ``alibi_scale`` is None if it depends on the length of the text."""

    alibi_scale: float | None = option(
        "divide the slopes by a factor, or by the number of tokens / the training length "
        "(dynamic); for evaluation past the training length",
        "none",
        parse=read_slope_divisor,
    )
    alibi_bias_max: float = option(
        "largest exponent of the slopes, from 2^(-MAX/heads) to 2^-MAX", 8.0, parse=positive_number
    )
    alibi_slopes: str | tuple[float, ...] = option(
        "paper, even (the last head sees up to the training length in bf16, and the others up to "
        "evenly spread parts of it), trainable (one parameter per head), random (from an "
        "exponential distribution, by --seed), or numbers or a file with one number per head, 0 "
        "for a head without a bias",
        "paper",
        parse=read_slopes,
        argument=slopes_from_file,
        metavar="paper|even|trainable|random|FILE",
    )
    alibi_distance: str = option(
        "linear, or log: the bias grows with the logarithm of 1 + the distance",
        "linear",
        parse=read_distance,
        metavar="linear|log",
    )
    alibi_clamp: float | None = option(
        "the bias is at least -C, such as 92 for weights in bf16",
        "none",
        parse=positive_or_none,
        metavar="none|C",
    )
    alibi_cap: float | None = option(
        "cap scores with their bias between -C and C, by C * tanh(score / C)",
        "none",
        parse=positive_or_none,
        metavar="none|C",
    )


class Alibi(PositionMethod):
    """ALiBi, with one score bias shared by all layers."""

    Options = AlibiOptions
    options: AlibiOptions

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        self.depends_on_key_count = self.options.alibi_scale is None
        heads = config.num_heads
        slopes = self.options.alibi_slopes
        paper_slopes = alibi_slopes(heads, self.options.alibi_bias_max)
        self.log_slopes = nn.Parameter(paper_slopes.log()) if slopes == "trainable" else None
        self._given: tuple[float, ...] | None = None
        if slopes == "random":
            self._given = random_slopes(heads, paper_slopes.mean().item(), config.seed)
        elif slopes == "even":
            self._given = even_slopes(heads, config.train_length)
        elif isinstance(slopes, tuple):
            self._given = slopes
            if len(slopes) != heads:
                raise UserInputError(
                    f"--alibi-slopes has {len(slopes)} numbers, but there are {heads} heads. Pass "
                    "one number per head."
                )

    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        bias = self._linear_bias(num_keys)
        logarithmic = self.options.alibi_distance == "log"
        if logarithmic or self.options.alibi_clamp is not None:
            bias = BentBias(bias, logarithmic, self.options.alibi_clamp)
        if self.options.alibi_cap is not None:
            return CappedBias(bias, self.options.alibi_cap)
        return bias

    def _linear_bias(self, num_keys: int) -> RelativeBias:
        """Return the bias that is proportional to the distance, for ``num_keys`` keys."""
        divisor = self.options.alibi_scale
        if divisor is None:
            divisor = max(1.0, num_keys / self.config.train_length)
        heads = self.config.num_heads
        bias_max = self.options.alibi_bias_max
        if self.log_slopes is None:
            return LinearBias(heads, divisor, bias_max, self._given)
        if torch.is_grad_enabled():
            return TrainableLinearBias(self, divisor)
        # Without a gradient, every backend for ALiBi accepts the slopes as numbers.
        trained = tuple(self.log_slopes.float().exp().tolist())
        return LinearBias(heads, divisor, bias_max, trained)


def random_slopes(num_heads: int, mean: float, seed: int) -> tuple[float, ...]:
    """Draw slopes from an exponential distribution, the same on every machine.

    Python promises that ``random.random()`` repeats its sequence in later versions; torch does not.
    """
    generator = random.Random(seed)
    return tuple(-mean * math.log1p(-generator.random()) for _ in range(num_heads))
