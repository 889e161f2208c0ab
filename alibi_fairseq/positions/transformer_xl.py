"""Transformer-XL: relative attention with a memory of past segments.

Paper: Dai et al. 2019, https://arxiv.org/abs/1901.02860, section 3. Letters (a) to (d) of the terms
are as in its section 3.3.

Formula: for query i and key j, both with the learned u and v of the head,

    (a) q_i·k_j + (b) q_i·r_{i−j} + (c) u·k_j + (d) v·r_{i−j},   r_d = W_kR R_d,

all divided by √D, where R_d holds sin(d·w), then cos(d·w), w_i = 10000^(−2i/C). W_kR is learned in
every layer, u and v are shared by all layers. (a) is the score itself; this file adds the rest.
Memory: the last ``mem_len`` inputs of each layer, without gradient, precede the new tokens as keys
and values. It is an input and an output of the decoder and never stored in the model. Dropout on R,
which the authors' code has and the paper does not mention, is omitted.
Cost: layers · C² + 2·C parameters, one projection of R per layer, and about as many multiplications
for (b) and (d) as for the scores themselves.
Past the training length: extrapolates, since training covers distances up to mem_len + T and the
memory carries context beyond them (section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..options import option
from .base import PositionConfig, PositionMethod, ScoreBias
from .options import count


def distance_sinusoids(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """Return R of the paper for the distances 0 … length − 1, (length, C) in fp32."""
    features = torch.arange(0, width, 2, dtype=torch.float32, device=device)
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None]
    angles = angles * 10000.0 ** (-features / width)  # (S, C/2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :width]  # (S, C)


def by_key(by_distance: Tensor) -> Tensor:
    """Rearrange scores per distance into scores per key.

    Args:
        by_distance: (B, H, n, K), column c for distance K − 1 − c.

    Returns:
        (B, H, n, K), column j for key j, where query t is at position K − n + t: its distance to
        key j is column n − 1 − t + j of the input. Entries of future keys are meaningless.
    """
    batch, heads, queries, keys = by_distance.shape
    padded = nn.functional.pad(by_distance, (1, 0))  # (B, H, n, 1 + K)
    # Each query's row shifts by one.
    shifted = padded.view(batch, heads, 1 + keys, queries)[:, :, 1:]
    return shifted.reshape(batch, heads, queries, keys)


@dataclass(frozen=True, eq=False)
class RelativeTerms(ScoreBias):
    """Terms (b), (c), and (d) of one layer.

    Attributes:
        u, v: (H, D) learned vectors.
        r: (H, S, D) projected sinusoids, largest distance S − 1 first.
    """

    u: Tensor
    v: Tensor
    r: Tensor

    needs_grad = True

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        num_keys = k.shape[2]
        scale = q.shape[-1] ** -0.5
        precise = torch.promote_types(q.dtype, torch.float32)
        shifted = (q + self.v[:, None].to(q.dtype)) * scale  # (B, H, n, D)
        near = self.r[:, self.r.shape[1] - num_keys :].to(q.dtype)  # (H, K, D)
        distance_terms = by_key(shifted @ near.transpose(1, 2)).to(precise)  # (B, H, n, K)
        content = (self.u[:, None].to(k.dtype) * scale) @ k.transpose(2, 3)  # (B, H, 1, K)
        return distance_terms + content.to(precise)


@dataclass(frozen=True)
class TransformerXLOptions:
    """Options of Transformer-XL."""

    mem_len: int = option(
        "length of the memory of each layer, in tokens; needs --task segment_language_modeling",
        0,
        parse=count,
    )


class TransformerXL(PositionMethod):
    """Transformer-XL, with a score bias and a memory."""

    Options = TransformerXLOptions
    options: TransformerXLOptions

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        self.memory_length = self.options.mem_len
        self.u = nn.Parameter(torch.empty(config.num_heads, config.head_dim))
        self.v = nn.Parameter(torch.empty(config.num_heads, config.head_dim))
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.Linear(config.embed_dim, config.embed_dim, bias=False)
            for _ in range(config.num_layers)
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)  # as the authors' code

    def bias(self, layer: int, num_keys: int) -> RelativeTerms:
        projection = self.layers[layer].get_parameter("weight")  # W_kR, (C, C)
        sinusoids = distance_sinusoids(num_keys, self.config.embed_dim, projection.device).flip(0)
        r = nn.functional.linear(sinusoids.to(projection.dtype), projection)  # (S, C)
        heads = (self.config.num_heads, self.config.head_dim)
        r = r.unflatten(-1, heads).transpose(0, 1)  # (H, S, D)
        return RelativeTerms(self.u, self.v, r)
