"""CoPE, contextual position encoding.

Paper: Golovneva et al. 2024, https://arxiv.org/abs/2405.18719.

Formula: softmax((q_i·k_j + q_i·e[p_ij])/√D), where p_ij = Σ_{t=j…i} σ(q_i·k_t/√D) is a soft count
of the keys from j to i. The gates σ select the keys that count for the query. e has one vector
per integer up to 63, learned in every layer and shared by its heads. Between two integers, the
products with their vectors are interpolated. Larger p_ij count as 63. With ``score_scaling``, q is
the scaled query, in the gates as well. As in the authors' code, e starts at 0. Their code has
train_length + 1 vectors by default. Here the number is fixed, so that training can continue at
another length.
Cost: layers · 64 · D parameters. The scores are computed once more, with a cumulative sum and two
lookups per score, which the backward pass recomputes.
Past the training length: extrapolates, in its paper better than relative and absolute embeddings,
since counts reached in training have the same meaning in longer input.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .base import PositionConfig, PositionMethod, ScoreBias

#: Number of vectors of a layer, for the counts 0 … 63.
NUM_POSITIONS = 64


@dataclass(frozen=True)
class ContextualBias(ScoreBias):
    """Bias q·e[p]/√D.

    Attributes:
        counts: module with e of a layer, (D, NUM_POSITIONS).
    """

    counts: nn.Module

    needs_grad = True

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        precise = torch.promote_types(q.dtype, torch.float32)
        q = q.to(precise) * q.shape[-1] ** -0.5
        k = k.to(precise)
        query_positions = first_position + torch.arange(q.shape[2], device=q.device)
        future = torch.arange(k.shape[2], device=q.device) > query_positions[:, None]  # (n, K)
        gates = torch.sigmoid(q @ k.transpose(2, 3)).masked_fill(future, 0.0)  # (B, H, n, K)
        # Counted from the query backward, so that earlier keys do not affect the count of a key.
        position = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=NUM_POSITIONS - 1)
        products = q @ self.counts.get_parameter("vectors").to(precise)  # (B, H, n, NUM_POSITIONS)
        below = position.detach().floor()
        above = position.detach().ceil()
        fraction = position - below
        low = products.gather(-1, below.long())
        high = products.gather(-1, above.long())
        return low + fraction * (high - low)


class Cope(PositionMethod):
    """CoPE, with separate vectors in each layer."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.ParameterDict({"vectors": torch.zeros(config.head_dim, NUM_POSITIONS)})
            for _ in range(config.num_layers)
        )

    def bias(self, layer: int, num_keys: int) -> ContextualBias:
        return ContextualBias(self.layers[layer])
