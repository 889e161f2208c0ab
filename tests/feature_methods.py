"""Position methods that act through features of the tokens, as a plugin would define them.

Shapes: B batch, T tokens, C model width, H query heads, G key heads, D head size, n queries of a
block, K keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from alibi_fairseq.positions import FeatureBias, PositionMethod, Rotation, ScoreBias


def slopes_of(heads: int) -> Tensor:
    return 2.0 ** -torch.arange(1, heads + 1).view(heads, 1, 1)


def rotate_by(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate pairs of features (B, heads, T, D) by angles that broadcast to (B, heads, T, D/2)."""
    precise = torch.promote_types(x.dtype, torch.float32)
    cos = angles.cos().to(precise)
    sin = angles.sin().to(precise)
    first, second = x.to(precise).chunk(2, dim=-1)
    rotated = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)
    return rotated.to(x.dtype)


class SelectiveRotation(PositionMethod):
    """Rotation by angles that each token adds, for every key head, as in Selective RoPE.

    https://arxiv.org/abs/2511.17388, without its convolution and with a plain linear layer.
    """

    sums_features = True

    def __init__(self, config):
        super().__init__(config)
        width = config.num_key_value_heads * config.head_dim // 2
        self.layers = nn.ModuleList(
            nn.Linear(config.embed_dim, width, bias=False) for _ in range(config.num_layers)
        )

    def token_features(self, layer: int, x: Tensor) -> Tensor:
        angles = self.layers[layer](x).float()  # (T, B, G · D/2)
        return angles.unflatten(-1, (-1, self.config.head_dim // 2)).permute(1, 2, 0, 3)

    def feature_rotation(self, layer: int, features: Tensor) -> Rotation:
        group = self.config.num_heads // self.config.num_key_value_heads

        def rotate_both(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            q = rotate_by(q, features.repeat_interleave(group, dim=1))
            return q, rotate_by(k, features)

        return rotate_both


@dataclass(frozen=True, eq=False)
class MixedDistanceBias(FeatureBias):
    """Bias −slope·distance·(u_i + w_j), with u of the query and w of the key in (0, 1)."""

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        queries = torch.arange(first_position, first_position + q.shape[2])
        distance = queries[:, None] - torch.arange(k.shape[2])
        of_queries = self.of_queries(q, first_position)[..., 0]  # (B, H, n)
        of_keys = self.of_keys(k)[..., 1]  # (B, H, K)
        strength = of_queries[..., None] + of_keys[..., None, :]
        return -slopes_of(q.shape[1]) * distance * strength


class MixedDistance(PositionMethod):
    """Bias that depends on features of the query and of the key, in the first layer only."""

    def __init__(self, config):
        super().__init__(config)
        self.projection = nn.Linear(config.embed_dim, 2 * config.num_heads)

    def token_features(self, layer: int, x: Tensor) -> Tensor | None:
        if layer > 0:
            return None
        features = self.projection(x).float().sigmoid()  # (T, B, H · 2)
        return features.unflatten(-1, (-1, 2)).permute(1, 2, 0, 3)

    def feature_bias(self, layer: int, features: Tensor) -> ScoreBias:
        return MixedDistanceBias(features)
