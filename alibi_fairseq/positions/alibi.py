"""ALiBi: attention with linear biases.

Paper: Press, Smith & Lewis 2022, "Train Short, Test Long", https://arxiv.org/abs/2108.12409.

Formula: softmax(q_i·k_j/√D − m_h·(i − j)), one fixed slope m_h per head. The bias is added to the
scaled scores and not scaled itself (footnote 10 of the paper).
Cost: no parameters; one addition per score, nothing to store but H slopes.
Past the training length: extrapolates. On WikiText-103 perplexity improves fast up to about twice the
training length, then slowly: it is best at 3 to 24 times the training length and level from there
(Tables 2-4). At 1.3B parameters it is best near twice the training length, then degrades to more than
at the training length itself (Figure 6).

Position interpolation (Al-Khateeb et al. 2023, https://arxiv.org/abs/2310.13017) divides the slopes
by L_eval / L_train, so that the largest bias stays the one seen in training: ``alibi_scale`` is a
factor, or ``dynamic`` for max(1, S / train_length) in every forward pass. With ``dynamic`` a cached
token was computed with the bias of its own length, so past the training length incremental decoding
differs from one pass over the whole text; with a fixed factor it does not.

``alibi_slopes`` chooses other slopes (:mod:`.slopes`): trainable, random or given ones.

The authors' code writes the bias as +m·j, which is equivalent to −m·(i − j) under softmax in exact
arithmetic. In fp16 that form rounds to multiples of whole tokens past position 2048; the relative
form used here is small, hence precise, near the query, where most of the attention is.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import BadInput
from .base import PositionConfig, PositionMethod, RelativeBias
from .slopes import TrainableLinearBias, given_slopes, random_slopes

#: Largest exponent of the slopes in the paper.
BIAS_MAX = 8.0


def alibi_slopes(num_heads: int, bias_max: float = BIAS_MAX) -> Tensor:
    """The slope of each head, equal to the authors' code.

    For a power of two n: 2^(−8/n), 2^(−16/n), … 2^(−8) (paper, section 3), with ``bias_max`` for 8.
    Otherwise, e.g. for the 12 heads of ``alibi_lm_small``, this follows the authors' code and not
    section 3, whose formula would give 2^(−8/12), 2^(−16/12), …: the slopes of the next lower power
    of two c, followed by every other slope of 2c. That sequence is not monotone.

    Args:
        num_heads: number of attention heads H ≥ 1.
        bias_max: largest exponent, ``alibi_bias_max`` in llm-foundry.

    Returns:
        (H,) float32 on the CPU.
    """
    if num_heads < 1:
        raise ValueError(f"ALiBi needs at least one attention head, not {num_heads}.")
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
    if bias.given is None:
        slopes = alibi_slopes(bias.num_heads, bias.bias_max)
    else:
        slopes = torch.tensor(bias.given, dtype=torch.float32)
    return (slopes / bias.divisor).to(device)


@dataclass(frozen=True)
class LinearBias(RelativeBias):
    """−m_h·distance, from fp32 slopes.

    Attributes:
        num_heads: H.
        divisor: all slopes are divided by it; 1 is the paper's ALiBi.
        bias_max: largest exponent of the slopes; 8 is the paper's ALiBi.
        given: H slopes instead of these.
    """

    num_heads: int
    divisor: float = 1.0
    bias_max: float = BIAS_MAX
    given: tuple[float, ...] | None = None

    def slopes(self, device: torch.device) -> Tensor:
        """(H,) fp32 slopes on a device."""
        return _slopes_on(self, device)

    def at(self, distance: Tensor) -> Tensor:
        slopes = self.slopes(distance.device)
        return -slopes.view(-1, *[1] * distance.dim()) * distance  # (H, *distance.shape)


class Alibi(PositionMethod):
    """Acts on the scores; one bias shared by all layers."""

    options = ("alibi_scale", "alibi_bias_max", "alibi_slopes")

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        self._divisor = slope_divisor(config.alibi_scale)
        if not (config.alibi_bias_max > 0 and math.isfinite(config.alibi_bias_max)):
            raise BadInput(
                f"--alibi-bias-max must be a positive number, not {config.alibi_bias_max}."
            )
        heads, kind = config.num_heads, config.alibi_slopes
        published = alibi_slopes(heads, config.alibi_bias_max)
        self.log_slopes = nn.Parameter(published.log()) if kind == "trainable" else None
        self._given: tuple[float, ...] | None = None
        if kind == "random":
            self._given = random_slopes(heads, published.mean().item(), config.seed)
        elif kind not in ("paper", "trainable"):
            self._given = given_slopes(kind, heads)

    def bias(self, layer: int, keys: int) -> RelativeBias:
        divisor = self._divisor
        if divisor is None:
            divisor = max(1.0, keys / self.config.train_length)
        heads, bias_max = self.config.num_heads, self.config.alibi_bias_max
        if self.log_slopes is None:
            return LinearBias(heads, divisor, bias_max, self._given)
        if torch.is_grad_enabled():
            return TrainableLinearBias(self, divisor)
        # Without a gradient, numbers, which every backend for ALiBi takes.
        learned = tuple(self.log_slopes.float().exp().tolist())
        return LinearBias(heads, divisor, bias_max, learned)


def slope_divisor(alibi_scale: str) -> float | None:
    """The divisor of the slopes that ``alibi_scale`` asks for; None if it depends on the length.

    Raises:
        BadInput: if it is neither ``none`` nor ``dynamic`` nor a positive number.
    """
    if alibi_scale == "none":
        return 1.0
    if alibi_scale == "dynamic":
        return None
    try:
        factor = float(alibi_scale)
    except ValueError:
        factor = 0.0
    if not (factor > 0 and math.isfinite(factor)):
        raise BadInput(
            f"--alibi-scale must be none, dynamic or a positive number, not '{alibi_scale}'."
        )
    return factor
