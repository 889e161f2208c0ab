"""KERPLE, the logarithmic variant.

Paper: Chi et al. 2022, https://arxiv.org/abs/2205.09921, equation 6 ("log").

Formula: softmax(q_i·k_j/√D − p_h·log(1 + a_h·(i − j))), with p_h > 0 and a_h > 0 learned for each
head and shared by all layers. As in the authors' code, p starts uniform in (0, 2), a in (0, 1). The
authors clamp both to at least 0.01 after every update; here their logarithms are learned, which
keeps them positive under any optimiser.
Cost: 2·H parameters; one logarithm per distance and head.
Past the training length: extrapolates, in its paper better than ALiBi (Table 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, RelativeBias

SMALLEST = 0.01


@dataclass(frozen=True)
class LogarithmicBias(RelativeBias):
    """−p_h·log(1 + a_h·distance).

    Attributes:
        method: the module that holds log p and log a, (H,) each.
    """

    method: Kerple

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        heads = (-1, *[1] * distance.dim())
        p, a = self.method.log_p.float().exp(), self.method.log_a.float().exp()  # (H,)
        return -p.view(heads) * torch.log1p(a.view(heads) * distance)


class Kerple(PositionMethod):
    """Acts on the scores; one learned bias shared by all layers."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        self.log_p = nn.Parameter((2 * torch.rand(config.num_heads)).clamp(min=SMALLEST).log())
        self.log_a = nn.Parameter(torch.rand(config.num_heads).clamp(min=SMALLEST).log())

    def bias(self, layer: int, keys: int) -> LogarithmicBias:
        return LogarithmicBias(self)
