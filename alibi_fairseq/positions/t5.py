"""T5's bucketed relative position bias.

Paper: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1.

Formula: softmax(q·k/√D + b_h(bucket(j − i))). Half of the buckets hold one distance each, the other
half grow logarithmically. The last one starts at ``max_distance`` at the latest and has no end. The
table is shared by all layers, as in the paper. T5 itself does not scale q·k and initializes its
projections smaller. Here the bias is added to scaled scores. ``t5_max_distance`` is 128 in the
paper, and the last bucket then starts at distance 113. Buckets of distances that do not occur in
training are not trained.
Cost: 32 · H parameters, and one table lookup per score, with its gradient in training.
Past the training length: perplexity is best near twice the training length, below that at the
training length up to 2.3 to 2.95 times, and then degrades (ALiBi paper, Tables 2-4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..options import option
from .base import PositionConfig, PositionMethod, RelativeBias
from .options import Value, integer

NUM_BUCKETS = 32
MAX_DISTANCE = 128


def find_bucket(distance: Tensor, max_distance: int = MAX_DISTANCE) -> Tensor:
    """Return the bucket, 0 … 31, of each distance (integers ≥ 0 of any shape)."""
    exact = NUM_BUCKETS // 2
    # In fp32 and in this order, so that the bucket boundaries equal T5's.
    octaves = torch.log(distance.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = exact + (octaves * (NUM_BUCKETS - exact)).long()
    return torch.where(distance < exact, distance, far.clamp(max=NUM_BUCKETS - 1))


@dataclass(frozen=True)
class BucketBias(RelativeBias):
    """Entry of ``table``, (32, H), for the bucket of each distance."""

    table: nn.Embedding
    max_distance: int = MAX_DISTANCE

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        buckets = find_bucket(distance, self.max_distance)
        return self.table(buckets).movedim(-1, 0).float()  # (H, *distance.shape)


def read_max_distance(text: Value) -> int:
    """Read a distance beyond those that have a separate bucket each."""
    if integer(text) <= NUM_BUCKETS // 2:
        raise ValueError(f"must be an integer above {NUM_BUCKETS // 2}")
    return integer(text)


@dataclass(frozen=True)
class T5Options:
    """Options of T5 bias."""

    t5_max_distance: int = option(
        "the bias is constant beyond this distance",
        MAX_DISTANCE,
        parse=read_max_distance,
    )


class T5(PositionMethod):
    """T5 bias, with one learned table shared by all layers."""

    Options = T5Options
    options: T5Options

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        self.relative_attention_bias = nn.Embedding(NUM_BUCKETS, config.num_heads)
        nn.init.normal_(self.relative_attention_bias.weight, std=config.embed_dim**-0.5)

    def bias(self, layer: int, num_keys: int) -> BucketBias:
        return BucketBias(self.relative_attention_bias, self.options.t5_max_distance)
