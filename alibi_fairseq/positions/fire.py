"""FIRE: functional interpolation for relative positions.

Paper: Li et al. 2023, https://arxiv.org/abs/2310.04418.

Formula: softmax(q_i·k_j/√D + f_h(ψ(i − j) / ψ(max(i, τ)))), ψ(x) = log(|c|·x + 1), positions counted from
0. f is a network with one hidden layer of 32 ReLUs and one output per head. The threshold τ is where the
interpolation starts: up to position τ the bias depends on the distance alone, past it on the share of
the text. c starts at 0.1. The paper's τ starts at 512 for texts of 2,048 tokens, here at a quarter of
the training length; as there it is learned by a factor, whose logarithm is the parameter. Each layer
has a bias of its own (sharing one is the paper's FIRE-S).
Cost: layers · (33·H + 66) parameters; 32·H multiplications per score, recomputed in the backward pass.
Past the training length: extrapolates, in its paper better than the biases before it, all of which it
can represent: ψ(i − j)/ψ(i) stays in [0, 1] at any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, QueryPositionBias

HIDDEN = 32
#: Keeps a text of one token from dividing by zero where the threshold has shrunk to nothing.
SMALLEST = 1e-6


class Interpolation(nn.Module):
    """The bias of one layer."""

    def __init__(self, config: PositionConfig):
        super().__init__()
        self.c = nn.Parameter(torch.tensor([0.1]))
        self.log_threshold = nn.Parameter(torch.tensor([config.train_length / 4]).log())
        self.hidden = nn.Linear(1, HIDDEN)
        self.out = nn.Linear(HIDDEN, config.num_heads)


@dataclass(frozen=True)
class InterpolatedBias(QueryPositionBias):
    """f(ψ(distance) / ψ(max(query position, τ))).

    Attributes:
        layer: the module that holds c, τ and f.
    """

    layer: Interpolation

    needs_grad = True

    def at(self, query_positions: Tensor, distance: Tensor) -> Tensor:
        layer = self.layer
        c = layer.c.float().abs()
        threshold = layer.log_threshold.float().exp()
        whole = torch.log1p(c * torch.maximum(query_positions.float(), threshold))  # (B or 1, n)
        share = torch.log1p(c * distance) / (whole[..., None] + SMALLEST)  # (B or 1, n, K)
        weights = (p.float() for p in (*layer.hidden.parameters(), *layer.out.parameters()))
        inner, inner_bias, outer, outer_bias = weights
        hidden = torch.relu(share[..., None] * inner[:, 0] + inner_bias)  # (B or 1, n, K, 32)
        return (hidden @ outer.t() + outer_bias).permute(0, 3, 1, 2)


class Fire(PositionMethod):
    """Acts on the scores; one learned bias per layer."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(Interpolation(config) for _ in range(config.num_layers))

    def bias(self, layer: int, keys: int) -> InterpolatedBias:
        module = self.layers[layer]
        assert isinstance(module, Interpolation)
        return InterpolatedBias(module)
