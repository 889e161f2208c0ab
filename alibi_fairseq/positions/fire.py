"""FIRE: functional interpolation for relative positions.

Paper: Li et al. 2023, https://arxiv.org/abs/2310.04418.

Formula: softmax(q_i·k_j/√D + f_h(ψ(i − j) / ψ(max(i, τ)))), with ψ(x) = log(|c|·x + 1) and
positions counted from 0. f is a network with one hidden layer of 32 ReLUs and one output per head.
The interpolation starts at the threshold τ: up to position τ the bias depends on the distance
alone, and past it on the fraction of the context. c starts at 0.1. τ starts at 512 in the paper,
for 2,048 tokens, and here at a quarter of the training length. As in the paper it is learned by a
factor; the parameter is the logarithm. Weight decay therefore pulls τ toward 1. Each layer has a
separate bias (sharing one is the paper's FIRE-S).
Cost: layers · (33·H + 66) parameters. It takes 32·H multiplications per score, which the backward
pass recomputes.
Past the training length: extrapolates, in its paper better than earlier biases. It can represent
the biases of T5, ALiBi, and KERPLE. ψ(i − j)/ψ(i) is in [0, 1] at any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, QueryPositionBias

HIDDEN = 32
#: Prevents division by zero at position 0 if the threshold has become 0.
EPSILON = 1e-6


class Interpolation(nn.Module):
    """Parameters of one layer: c, the logarithm of τ, and the network f."""

    def __init__(self, config: PositionConfig):
        super().__init__()
        self.c = nn.Parameter(torch.tensor([0.1]))
        self.log_threshold = nn.Parameter(torch.tensor([config.train_length / 4]).log())
        self.hidden = nn.Linear(1, HIDDEN)
        self.out = nn.Linear(HIDDEN, config.num_heads)


@dataclass(frozen=True)
class InterpolatedBias(QueryPositionBias):
    """Bias f(ψ(distance) / ψ(max(query position, τ))).

    Attributes:
        layer: module with c, τ, and f.
    """

    layer: Interpolation

    needs_grad = True

    def at(self, query_positions: Tensor, distance: Tensor) -> Tensor:
        layer = self.layer
        c = layer.c.float().abs()
        threshold = layer.log_threshold.float().exp()
        normalizer = torch.log1p(c * torch.maximum(query_positions.float(), threshold))  # (B|1, n)
        fraction = torch.log1p(c * distance) / (normalizer[..., None] + EPSILON)  # (B|1, n, K)
        weight = layer.hidden.weight.float()[:, 0]  # (32,)
        hidden = torch.relu(fraction[..., None] * weight + layer.hidden.bias.float())
        out = hidden @ layer.out.weight.float().t() + layer.out.bias.float()  # (B|1, n, K, H)
        return out.permute(0, 3, 1, 2)


class Fire(PositionMethod):
    """FIRE, with one learned score bias per layer."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(Interpolation(config) for _ in range(config.num_layers))

    def bias(self, layer: int, num_keys: int) -> InterpolatedBias:
        module = self.layers[layer]
        assert isinstance(module, Interpolation)
        return InterpolatedBias(module)
