"""KERPLE, the logarithmic variant.

Paper: Chi et al. 2022, https://arxiv.org/abs/2205.09921, equation 6 ("log").

Formula: softmax(q_i·k_j/√D − p_h·log(1 + a_h·(i − j))), with p_h > 0 and a_h > 0 learned for each
head and shared by all layers. As in the authors' code, p starts uniform in (0, 2) and a in (0, 1).
The authors clamp both to at least 0.01 after every update. Here their logarithms are learned, which
keeps them positive under any optimizer. Weight decay therefore pulls p and a toward 1, not 0. The
authors train without weight decay.
Cost: 2·H parameters, and one logarithm per distance and head.
Past the training length: extrapolates, in its paper better than ALiBi (Table 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, RelativeBias

#: Smallest initial value of p and a.
MIN_INITIAL = 0.01


@dataclass(frozen=True)
class LogarithmicBias(RelativeBias):
    """Bias −p_h·log(1 + a_h·distance).

    Attributes:
        method: module with log p and log a, (H,) each.
    """

    method: Kerple

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        heads = (-1, *[1] * distance.dim())
        p = self.method.log_p.float().exp().view(heads)
        a = self.method.log_a.float().exp().view(heads)
        return -p * torch.log1p(a * distance)


class Kerple(PositionMethod):
    """KERPLE, with one learned score bias shared by all layers."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        self.log_p = nn.Parameter((2 * torch.rand(config.num_heads)).clamp(min=MIN_INITIAL).log())
        self.log_a = nn.Parameter(torch.rand(config.num_heads).clamp(min=MIN_INITIAL).log())

    def bias(self, layer: int, num_keys: int) -> LogarithmicBias:
        return LogarithmicBias(self)
