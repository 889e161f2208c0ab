"""Features that a position method computes for each token from the input of a layer's attention.

Both kinds of blocks call these functions, so training, cached decoding, and a memory use the same
code.

Shapes: B batch, M remembered states, T new tokens, S keys, C model width, F features, D head size,
H query heads, G key and value heads; the features have as many heads as the method gives them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .base import PositionMethod, Rotation, ScoreBias


def compute_features(
    method: PositionMethod, layer: int, x: Tensor, cached: Tensor | None
) -> Tensor | None:
    """Return the features of tokens, (B, heads, M + T, F), or None if the method has none.

    Args:
        layer: index of the layer among those with this method.
        x: (M + T, B, C), input of the layer's attention.
        cached: (B, heads, S - T, F) features of the cached tokens, or None.
    """
    features = method.token_features(layer, x)
    if features is None or not method.sums_features:
        return features
    sums = features.double().cumsum(2)
    if cached is not None:
        sums = cached[:, :, -1:] + sums
    return sums


def feature_bias(method: PositionMethod, layer: int, features: Tensor | None) -> ScoreBias | None:
    """Return the score bias that takes the place of a ``PendingBias``.

    Args:
        layer: index of the layer among those with this method.
        features: (B, heads, S, F) features of all keys; None: the layer has none, and no bias.
    """
    return None if features is None else method.feature_bias(layer, features)


def rotate_by_features(
    method: PositionMethod, layer: int, features: Tensor | None, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys as the method does with the features of their tokens.

    Args:
        layer: index of the layer among those with this method.
        features: (B, heads, M + T, F), the result of :func:`compute_features`.
        q: (B, H, T, D) queries of the last tokens.
        k: (B, G, M + T, D) keys.
    """
    if features is None:
        return q, k
    rotation = method.feature_rotation(layer, features)
    if rotation is None:
        return q, k
    if q.shape[2] < k.shape[2]:
        rotation = rotate_last_queries(rotation)
    return rotation(q, k)


def rotate_last_queries(rotation: Rotation) -> Rotation:
    """Adapt a rotation of T queries and keys to the last few queries.

    The result pads the queries (B, H, last, D) to T, so that each is rotated by its own position.
    """

    def rotate_last(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        last = q.shape[2]
        num_earlier = k.shape[2] - last
        padded = pad(q, (0, 0, num_earlier, 0))  # (B, H, T, D)
        q, k = rotation(padded, k)
        return q[:, :, -last:], k

    return rotate_last


def append_features(cached: Tensor | None, features: Tensor) -> Tensor:
    """Return the features of all tokens, (B, heads, S, F), from cached and new ones."""
    return features if cached is None else torch.cat([cached, features], dim=2)
