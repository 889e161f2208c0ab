"""GRAPE-A-QK: ALiBi whose slopes depend on the query and on the key.

Paper: Zhang et al. 2026, "Group Representational Position Encoding",
https://arxiv.org/abs/2512.07805. Code: https://github.com/model-architectures/GRAPE.

Formula: softmax(q_i·k_j/√D − (i − j)·m_h·softplus(ω_h)·(a_i + b_j)) with ALiBi's slopes m_h and the
gates a_i = softplus(v_h·q_i/√D) and b_j = softplus(u_h·k_j/√D). ω_h and the vectors u_h and v_h,
which are normalized to length 1, are learned for every head and layer. As in the authors' code,
softplus(ω) starts at 1, and u and v start normal with standard deviation 1/√D. With grouped heads,
each query head has its own u for the shared key. With ``score_scaling``, q is the scaled query. Of
the authors' code, we could only read the variant with b_j alone.
Cost: layers · H · (2·D + 1) parameters, and one product per score.
Past the training length: the paper reports no perplexity there. Whatever u and v are, the bias
grows linearly with the distance, as ALiBi's does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from .alibi import LinearBias
from .base import PositionConfig, PositionMethod, ScoreBias

#: Initial ω, with softplus(ω) = 1.
INITIAL_STRENGTH = math.log(math.expm1(1.0))


@dataclass(frozen=True)
class GatedSlopesBias(ScoreBias):
    """Bias −distance·slope with a slope for every query and key.

    Attributes:
        parameters: module with ω (H,), v and u (H, D) of a layer.
    """

    parameters: nn.Module

    needs_grad = True

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        of_queries = self._gates("query_vectors", q)[..., None]  # (B, H, n, 1)
        of_keys = self._gates("key_vectors", k)[..., None, :]  # (B, H, 1, K)
        strength = softplus(self.parameters.get_parameter("strength").to(of_keys.dtype))
        slopes = LinearBias(len(strength)).slopes(q.device) * strength  # (H,)
        positions = torch.arange(k.shape[2], device=q.device)
        query_positions = positions[first_position : first_position + q.shape[2]]
        distance = query_positions[:, None] - positions  # (n, K)
        return -slopes[:, None, None] * distance * (of_queries + of_keys)

    def _gates(self, name: str, x: Tensor) -> Tensor:
        """Return the gate of each query or key (B, H, n, D), (B, H, n)."""
        precise = torch.promote_types(x.dtype, torch.float32)
        vectors = normalize(self.parameters.get_parameter(name).to(precise), dim=-1)  # (H, D)
        products = x.to(precise) @ vectors[:, :, None]  # (B, H, n, 1)
        return softplus(products.squeeze(-1) * x.shape[-1] ** -0.5)


class GrapeAQK(PositionMethod):
    """GRAPE-A-QK, with separate parameters in each layer."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.ParameterDict(
                {
                    "strength": torch.full((config.num_heads,), INITIAL_STRENGTH),
                    "query_vectors": self._random_vectors(),
                    "key_vectors": self._random_vectors(),
                }
            )
            for _ in range(config.num_layers)
        )

    def _random_vectors(self) -> Tensor:
        """Draw a vector per head, (H, D)."""
        size = self.config.head_dim
        return torch.randn(self.config.num_heads, size) * size**-0.5

    def bias(self, layer: int, num_keys: int) -> GatedSlopesBias:
        return GatedSlopesBias(self.layers[layer])
