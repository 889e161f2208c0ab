"""BAM, the Bayesian attention mechanism, with its generalised Gaussian prior.

Paper: Bianchessi et al. 2025, https://arxiv.org/abs/2505.22842 (GGD-BAM).

Formula: softmax(q_i·k_j/√D − e^α_h·(i − j + ε)^β_h), with α and β learned for every head and layer. A
constant is no bias (β = 0), β = 1 is ALiBi with the slope e^α, and a negative β weighs down the keys
nearby instead. As in the authors' code α and β start at 0, so there is no bias at first, ε is 1e-5, and
the offset μ of the distance, which they keep at 0 by default, is left out.
Cost: 2·H·layers parameters; one power per distance and head.
Past the training length: extrapolates; the paper reports perplexities like ALiBi's and far better
retrieval, best together with ``--score-scaling ssmax``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, RelativeBias

EPSILON = 1e-5


@dataclass(frozen=True)
class GeneralisedGaussianBias(RelativeBias):
    """−e^α_h·(distance + ε)^β_h.

    Attributes:
        prior: the module that holds α and β of a layer, (H,) each.
    """

    prior: nn.Module

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        heads = (-1, *[1] * distance.dim())
        parameters = (self.prior.get_parameter(name) for name in ("alpha", "beta"))
        alpha, beta = (p.float().view(heads) for p in parameters)
        return -torch.exp(alpha + beta * torch.log(distance + EPSILON))


class Bam(PositionMethod):
    """Acts on the scores; one learned bias per layer."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.ParameterDict({name: torch.zeros(config.num_heads) for name in ("alpha", "beta")})
            for _ in range(config.num_layers)
        )

    def bias(self, layer: int, keys: int) -> GeneralisedGaussianBias:
        return GeneralisedGaussianBias(self.layers[layer])
