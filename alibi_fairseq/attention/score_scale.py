"""Scaling of queries with the logarithm of the number of visible keys, for any position method.

Softmax over more keys is flatter, so attention in a longer text is more spread out than in
training. A query that sees n keys is multiplied by

- ``logn``: max(1, ln n / ln L), where L is the training length (Su 2021,
  https://kexue.fm/archives/8823; Chiang & Cholak 2022, https://arxiv.org/abs/2202.12172; with this
  maximum in Qwen, Bai et al. 2023, https://arxiv.org/abs/2309.16609). Up to L it changes nothing,
  so it can also be set for evaluation alone.
- ``ssmax``: s·ln n, with s learned for every head and layer (Nakanishi 2025, "Scalable-Softmax",
  https://arxiv.org/abs/2501.19399). Initially the mean of s·ln n over the training length is 1.

The bias of a position method is added to the scaled scores and is not scaled itself. The terms of
Transformer-XL and CoPE that are products with the query are scaled.
Cost: one multiplication per feature of each query; H · layers parameters for ``ssmax``.

Shapes: B batch, H heads, T queries, D head size.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .future_mask import FutureMask

SCORE_SCALINGS = ("none", "logn", "ssmax")


class ScoreScale(nn.Module):
    """Query factors of all layers.

    Args:
        kind: ``logn`` or ``ssmax``.
        heads, layers: numbers of heads and of layers.
        train_length: L, tokens per training sample.
    """

    def __init__(self, kind: str, heads: int, layers: int, train_length: int):
        super().__init__()
        self.kind = kind
        length = max(2, train_length)
        self.log_length = math.log(length)
        if kind == "ssmax":
            mean_log = math.lgamma(length + 1) / length  # mean of ln n over n = 1 … L
            # fairseq's pruning finds the parameters of a layer by the name "layers".
            self.layers = nn.ModuleList(
                nn.ParameterDict({"s": torch.full((heads,), 1 / mean_log)}) for _ in range(layers)
            )

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
            factor = (logarithm / self.log_length).clamp(min=1)  # (B or 1, 1, T, 1)
        else:
            s = self.layers[layer].get_parameter("s").view(-1, 1, 1)  # (H, 1, 1)
            factor = s * logarithm  # (B or 1, H, T, 1)
        return (q * factor).to(q.dtype)
