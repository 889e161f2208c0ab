"""Scaling of queries with the logarithm of the number of visible keys, for any position method.

Softmax over more keys is flatter, so attention in a longer text is more spread out than in
training. A query that sees n keys is multiplied by

- ``logn``: max(1, ln n / ln L) (Su 2021, https://kexue.fm/archives/8823; Chiang & Cholak 2022,
  https://arxiv.org/abs/2202.12172; with this maximum in Qwen, Bai et al. 2023,
  https://arxiv.org/abs/2309.16609). Up to L it changes nothing, so it can also be set for
  evaluation alone.
- ``ssmax``: s·ln n, with s learned for every head and layer (Nakanishi 2025, "Scalable-Softmax",
  https://arxiv.org/abs/2501.19399). Initially the mean of s·ln n over a training sample is 1.

L is the largest n of the layer in training, min(window, earlier inputs + training length), even if
an evaluation overrides one of them. A window that only the evaluation has does not change L. If it
is at most L, ``logn`` has no effect.

The bias of a position method is added to the scaled scores and is not scaled itself. The terms of
Transformer-XL and CoPE that are products with the query are scaled. So are the products in CoPE's
gates, which changes its counts.
Cost: one multiplication per feature of each query; H · layers parameters for ``ssmax``.

Shapes: B batch, H heads, T queries, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .future_mask import FutureMask

SCORE_SCALINGS = ("none", "logn", "ssmax")


class ScoreScale(nn.Module):
    """Query factors of all layers.

    Args:
        kind: ``logn`` or ``ssmax``.
        train_length: tokens per training sample.
        windows: attention window of each layer in training, 0 where there is no limit; empty if no
            layer has one.
        num_earlier: inputs of a layer before the sample that it attends to in training.
    """

    def __init__(
        self,
        kind: str,
        num_heads: int,
        num_layers: int,
        train_length: int,
        windows: Sequence[int] = (),
        num_earlier: int = 0,
    ):
        super().__init__()
        self.kind = kind
        length = max(2, train_length)
        longest = num_earlier + length
        windows = windows or [0] * num_layers
        # At least 2, since ln 1 is 0.
        most_keys = [max(2, min(window or longest, longest)) for window in windows]
        self.log_lengths = [math.log(most) for most in most_keys]  # ln L of each layer
        if kind == "ssmax":
            # fairseq's pruning finds the parameters of a layer by the name "layers".
            self.layers = nn.ModuleList()
            for most in most_keys:
                initial = 1 / mean_log(num_earlier, length, most)
                self.layers.append(nn.ParameterDict({"s": torch.full((num_heads,), initial)}))

    def forward(self, layer: int, q: Tensor, mask: FutureMask) -> Tensor:
        """Return the scaled queries of one layer.

        Args:
            layer: number of the layer, from 0.
            q: (B, H, T, D) unscaled queries.
            mask: the mask of the layer.

        Returns:
            (B, H, T, D) in the dtype of ``q``.
        """
        precise = torch.promote_types(q.dtype, torch.float32)
        visible = mask.query_positions(q.device) + 1  # (B or 1, T)
        if mask.window:
            visible = visible.clamp(max=mask.window)
        logarithm = visible.to(precise).log()[:, None, :, None]  # (B or 1, 1, T, 1)
        if self.kind == "logn":
            factor = (logarithm / self.log_lengths[layer]).clamp(min=1)  # (B or 1, 1, T, 1)
        else:
            s = self.layers[layer].get_parameter("s").view(-1, 1, 1)  # (H, 1, 1)
            factor = s * logarithm  # (B or 1, H, T, 1)
        return (q * factor).to(q.dtype)


def mean_log(num_earlier: int, length: int, most: int) -> float:
    """Return the mean of ln n over the queries of a sample.

    Args:
        num_earlier, length: number of keys before the sample, and its length in tokens.
        most: largest number n of keys that a query sees.
    """

    def total(num_queries: int) -> float:  # sum of ln n of the first queries in a text
        unlimited = math.lgamma(min(num_queries, most) + 1)  # sum of ln n over n = 1, 2, …
        return unlimited + max(0, num_queries - most) * math.log(most)

    return (total(num_earlier + length) - total(num_earlier)) / length
