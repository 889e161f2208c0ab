"""CoPE, contextual position encoding.

Paper: Golovneva et al. 2024, https://arxiv.org/abs/2405.18719.

Formula: softmax((q_i·k_j + q_i·e[p_ij])/√D), where p_ij = Σ_{t=j…i} σ(q_i·k_t/√D) counts the keys from j
to the query that the query takes for the unit it counts in. e holds a vector for each whole number up to
63, learned for every layer and shared by its heads; between two numbers the products with their vectors
are interpolated, and larger p_ij count as 63. As in the authors' code e starts at 0. Their code has as
many vectors as the training length and one more unless told otherwise; here the number is fixed, so
that a model can be continued at another length.
Cost: layers · 64 · D parameters; besides the scores, which are computed once more, a running sum and two
lookups per score, recomputed in the backward pass.
Past the training length: extrapolates, in its paper better than relative and absolute embeddings: counts
that were reached in training mean the same in a longer text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, ScoreBias

#: Vectors of a layer, for the counts 0 … 63.
NUM_POSITIONS = 64


@dataclass(frozen=True)
class ContextualBias(ScoreBias):
    """q·e[p]/√D.

    Attributes:
        counts: the module that holds e of a layer, (D, COUNTS).
    """

    counts: nn.Module

    needs_grad = True

    def block(self, q: Tensor, k: Tensor, first: int) -> Tensor:
        precise = torch.promote_types(q.dtype, torch.float32)
        q, k = q.to(precise) * q.shape[-1] ** -0.5, k.to(precise)
        places = torch.arange(first, first + q.shape[2], device=q.device)
        future = torch.arange(k.shape[2], device=q.device) > places[:, None]  # (n, K)
        gates = torch.sigmoid(q @ k.transpose(2, 3)).masked_fill(future, 0.0)  # (B, H, n, K)
        # Counted from the query backwards: what lies before a key never matters to it.
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=NUM_POSITIONS - 1)
        products = q @ self.counts.get_parameter("vectors").to(precise)  # (B, H, n, COUNTS)
        below = position.detach().floor()
        above = position.detach().ceil()
        share = position - below
        low, high = (products.gather(-1, whole.long()) for whole in (below, above))
        return low + share * (high - low)


class Cope(PositionMethod):
    """Acts on the scores; each layer counts with vectors of its own."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.ParameterDict({"vectors": torch.zeros(config.head_dim, NUM_POSITIONS)})
            for _ in range(config.num_layers)
        )

    def bias(self, layer: int, keys: int) -> ContextualBias:
        return ContextualBias(self.layers[layer])
