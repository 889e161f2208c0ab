"""Queries multiplied by the logarithm of the number of keys they see, with any position method.

Softmax over more keys is flatter, so a longer text draws attention from where it was in training. A
query that sees n keys is multiplied by

- ``logn``: max(1, ln n / ln L), L being the training length (Su 2021, https://kexue.fm/archives/8823;
  Chiang & Cholak 2022, https://arxiv.org/abs/2202.12172; with this maximum in Qwen, Bai et al. 2023,
  https://arxiv.org/abs/2309.16609). Up to L it is the model without it, hence meant for evaluation too.
- ``ssmax``: s·ln n, with s learned for every head and layer (Nakanishi 2025, "Scalable-Softmax",
  https://arxiv.org/abs/2501.19399). s starts where the mean of s·ln n over the training length is 1.

The bias of a position method is added to the scaled scores and not scaled itself; Transformer-XL's and
CoPE's terms that are products with the query are.
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
    """The factors of all layers; ``kind`` is one of ``SCORE_SCALINGS`` but ``none``."""

    def __init__(self, kind: str, heads: int, layers: int, train_length: int):
        super().__init__()
        self.kind = kind
        length = max(2, train_length)
        self.least = math.log(length)
        if kind == "ssmax":
            mean = math.lgamma(length + 1) / length  # of ln n for n = 1 … L
            # fairseq's pruning finds the parameters of a layer by the name "layers".
            self.layers = nn.ModuleList(
                nn.ParameterDict({"s": torch.full((heads,), 1 / mean)}) for _ in range(layers)
            )

    def forward(self, layer: int, q: Tensor, mask: FutureMask) -> Tensor:
        """The queries (B, H, T, D) of one layer, scaled."""
        seen = mask.places(q.device) + 1  # (B or 1, T)
        if mask.window:
            seen = seen.clamp(max=mask.window)
        logarithm = seen.to(torch.promote_types(q.dtype, torch.float32)).log()[:, None, :, None]
        if self.kind == "logn":
            factor = (logarithm / self.least).clamp(min=1)  # (B or 1, 1, T, 1)
        else:
            s = self.layers[layer].get_parameter("s").view(-1, 1, 1)
            factor = s * logarithm  # (B or 1, H, T, 1)
        return (q * factor).to(q.dtype)
