"""A pre-norm transformer block with any position method.

Shapes: B batch, T new tokens, C model width, F inner width of the feed-forward network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..attention import ScoreScale
from ..positions import PositionMethod
from .causal_attention import Cache, CausalAttention
from .feed_forward import swiglu
from .normalization import build_norm
from .options import BlockOptions


class TransformerBlock(nn.Module):
    """Attention and feed-forward network, each after a norm and with a residual connection.

    The state dict has the names of a layer of the ``alibi_lm`` models. There is no dropout.

    Args:
        positions: position method, one object that all blocks share.
        layer: index of the block.
        ffn_width: inner width F.
        options: parts of the block.
        score_scale: scaling of the queries, one object that all blocks share, or None.
    """

    def __init__(
        self,
        positions: PositionMethod,
        layer: int,
        ffn_width: int,
        options: BlockOptions | None = None,
        score_scale: ScoreScale | None = None,
    ):
        super().__init__()
        options = options or BlockOptions()
        width = positions.config.embed_dim
        self.self_attn = CausalAttention(positions, layer, options, score_scale)
        self.self_attn_layer_norm = build_norm(options.normalization, width, options.rms_norm_eps)
        gated = options.ffn == "swiglu"
        self.activation = swiglu if gated else nn.functional.relu
        fc1_width = 2 * ffn_width if gated else ffn_width  # the gate and the values, or the values
        self.fc1 = nn.Linear(width, fc1_width, bias=options.linear_biases)
        self.fc2 = nn.Linear(ffn_width, width, bias=options.linear_biases)
        self.final_layer_norm = build_norm(options.normalization, width, options.rms_norm_eps)

    def forward(
        self,
        x: Tensor,
        cache: Cache | None = None,
        earlier: Tensor | None = None,
        **mask_options: Any,
    ) -> tuple[Tensor, Cache]:
        """Return the output, (B, T, C), and the cache for the next call.

        :meth:`CausalAttention.forward` describes the arguments. The first norm also applies to
        ``earlier``.
        """
        if earlier is not None:
            earlier = self.self_attn_layer_norm(earlier)
        attended, cache = self.self_attn(
            self.self_attn_layer_norm(x), cache, earlier, **mask_options
        )
        x = x + attended
        inner = self.activation(self.fc1(self.final_layer_norm(x)))  # (B, T, F)
        return x + self.fc2(inner), cache


def embed_positions(positions: PositionMethod, x: Tensor, start: int = 0) -> Tensor:
    """Add position embeddings to the input of the first block, (B, T, C), if the method has any.

    Args:
        start: position of the first token.
    """
    batch_size, num_tokens, _ = x.shape
    steps = torch.arange(start, start + num_tokens, device=x.device)
    embeddings = positions.embed(steps.expand(batch_size, num_tokens))
    return x if embeddings is None else x + embeddings
