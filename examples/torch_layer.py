"""ALiBi in ``torch.nn.TransformerEncoderLayer``, without fairseq; the mask is made once for all layers."""

import torch
from torch import nn

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import PositionConfig, build_position_method


class Block(nn.TransformerEncoderLayer):
    def forward(self, x, mask):  # (B, T, C)
        return self._ff_block(self.norm2(y := x + self.attention(self.norm1(x), mask))) + y

    def attention(self, x, mask):
        projected = nn.functional.linear(
            x, self.self_attn.in_proj_weight, self.self_attn.in_proj_bias
        )
        q, k, v = projected.unflatten(-1, (3, self.self_attn.num_heads, -1)).permute(2, 0, 3, 1, 4)
        output, _ = attend(q, k, v, mask)  # (B, H, T, D)
        return self.self_attn.out_proj(output.transpose(1, 2).flatten(2))


shape = dict(nhead=8, dropout=0.0, batch_first=True, norm_first=True)
layers = nn.ModuleList(Block(64, **shape) for _ in range(2))
positions = build_position_method(
    "alibi", PositionConfig(64, num_heads=8, num_layers=2, train_length=128)
)
x = torch.randn(4, 128, 64)
mask = FutureMask(positions.bias(0, keys=128), queries=128, keys=128)
for layer in layers:
    x = layer(x, mask)
