"""The learned relative bias of Inkling, which depends on the query's token.

Model: Thinking Machines 2026, Inkling. There is no paper about the bias; the formula is that of
``InklingRelativeLogits`` in transformers, ``models/inkling/modeling_inkling.py``.

Formula: softmax(q_i·k_j/√D + Σ_r x_i·w_hr · P_r,(i − j)) for i − j < E, where x is the input of
the layer's attention. The P_r are 16 profiles over the distance, learned in every layer and shared
by its heads, and the w_hr mix them for each query and head. From the distance E on, the bias is 0.
As in transformers, all of them start normal with standard deviation 0.02, so a distance that does
not occur in training keeps a bias near 0. Inkling also normalizes queries and keys, as the option
``normalize_queries_keys`` does. It divides q_i·k_j by D instead of √D, convolves keys and values,
and, if ``log_scaling_n_floor`` is a number n₀, multiplies q_i and its bias by
1 + α·ln(max(1, n/n₀)) in layers with unlimited attention, where n is the number of keys that the
query sees. No option here does any of these three.
Cost: layers · 16 · (C·H + E) parameters, and a product and a lookup per score. The KV cache also
has the 16 weights of each head, although only those of the query are used.
Past the training length: extrapolates better than RoPE, by the vendor's account. There is no bias
beyond E, so a head with unlimited attention no longer distinguishes these distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..options import option
from .base import FeatureBias, PositionConfig, PositionMethod
from .options import positive_integer

#: Number of profiles, as in the released models.
PROFILES = 16
#: Standard deviation of the initial parameters.
INITIAL_STD = 0.02


@dataclass(frozen=True, eq=False)
class ProfileBias(FeatureBias):
    """Bias of each query as a mixture of profiles over the distance.

    Attributes:
        features: (B, H, S, PROFILES) mixing weights.
        layer: module with the profiles of a layer, (PROFILES, E).
    """

    layer: nn.Module

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        mixing = self.of_queries(q, first_position)  # (B, H, n, PROFILES)
        precise = torch.promote_types(mixing.dtype, torch.float32)
        profiles = self.layer.get_parameter("profiles").to(precise)
        by_distance = mixing.to(precise) @ profiles  # (B, H, n, E)
        extent = profiles.shape[1]
        positions = torch.arange(k.shape[2], device=q.device)
        query_positions = positions[first_position : first_position + q.shape[2]]
        distance = query_positions[:, None] - positions  # (n, K)
        index = distance.clamp(0, extent - 1).expand(*by_distance.shape[:2], -1, -1)
        bias = by_distance.gather(-1, index)  # (B, H, n, K)
        return bias.masked_fill((distance < 0) | (distance >= extent), 0.0)


@dataclass(frozen=True)
class InklingOptions:
    """Options of the learned relative bias."""

    inkling_extent: int = option(
        "distance from which on the bias is 0, in tokens", 1024, parse=positive_integer
    )


class Inkling(PositionMethod):
    """Learned relative bias, with separate profiles and mixing weights in each layer."""

    Options = InklingOptions
    options: InklingOptions

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        extent = self.options.inkling_extent
        width = config.num_heads * PROFILES
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            InklingLayer(config.embed_dim, width, extent) for _ in range(config.num_layers)
        )

    def token_features(self, layer: int, x: Tensor) -> Tensor:
        mixing = self.layers[layer].mixing(x)  # type: ignore[operator]  # (T, B, H · PROFILES)
        return mixing.unflatten(-1, (-1, PROFILES)).permute(1, 2, 0, 3)  # (B, H, T, PROFILES)

    def feature_bias(self, layer: int, features: Tensor) -> ProfileBias:
        return ProfileBias(features, self.layers[layer])


class InklingLayer(nn.Module):
    """Parameters of a layer."""

    def __init__(self, width: int, mixing_width: int, extent: int):
        super().__init__()
        self.mixing = nn.Linear(width, mixing_width, bias=False)
        self.profiles = nn.Parameter(torch.empty(PROFILES, extent))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=INITIAL_STD)
