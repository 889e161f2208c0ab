"""BAM, the Bayesian attention mechanism, with its generalized Gaussian prior.

Paper: Bianchessi et al. 2025, https://arxiv.org/abs/2505.22842 (GGD-BAM).

Formula: softmax(q_i·k_j/√D − e^α_h·(i − j + ε)^β_h), with α and β learned for every head and layer.
With β = 0 the bias is constant and has no effect. With β = 1 it is ALiBi with slope e^α. A negative
β reduces the weight of nearby keys instead. As in the authors' code, α and β start at 0, so that
there is no bias at first, and ε is 1e-5. Their offset μ of the distance, 0 by default, is omitted.
Cost: 2·H·layers parameters, and one power per distance and head.
Past the training length: extrapolates. The paper reports perplexities like ALiBi's and far better
retrieval, best together with ``--score-scaling ssmax``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, RelativeBias

EPSILON = 1e-5


@dataclass(frozen=True)
class GeneralizedGaussianBias(RelativeBias):
    """Bias −e^α_h·(distance + ε)^β_h.

    Attributes:
        prior: module with α and β of a layer, (H,) each.
    """

    prior: nn.Module

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        heads = (-1, *[1] * distance.dim())
        alpha = self.prior.get_parameter("alpha").float().view(heads)
        beta = self.prior.get_parameter("beta").float().view(heads)
        return -torch.exp(alpha + beta * torch.log(distance + EPSILON))


class Bam(PositionMethod):
    """BAM, with one learned score bias per layer."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.ParameterDict({name: torch.zeros(config.num_heads) for name in ("alpha", "beta")})
            for _ in range(config.num_layers)
        )

    def bias(self, layer: int, num_keys: int) -> GeneralizedGaussianBias:
        return GeneralizedGaussianBias(self.layers[layer])
