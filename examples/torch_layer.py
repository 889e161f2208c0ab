"""ALiBi in ``torch.nn.TransformerEncoderLayer``, without fairseq. All layers share one mask."""

import torch
from torch import nn

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import PositionConfig, build_position_method


class Block(nn.TransformerEncoderLayer):
    """Pre-norm transformer layer with a :class:`FutureMask`."""

    def forward(self, x, mask):  # (B, T, C)
        x = x + self.attention(self.norm1(x), mask)
        return x + self._ff_block(self.norm2(x))

    def attention(self, x, mask):  # (B, T, C)
        layer = self.self_attn
        projected = nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias)  # (B, T, 3·C)
        projected = projected.unflatten(-1, (3, layer.num_heads, -1))  # (B, T, 3, H, D)
        q, k, v = projected.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        output, _ = attend(q, k, v, mask)  # (B, H, T, D)
        return layer.out_proj(output.transpose(1, 2).flatten(2))


layers = nn.ModuleList()
for _ in range(2):
    layers.append(Block(64, nhead=8, dropout=0.0, batch_first=True, norm_first=True))
config = PositionConfig(64, num_heads=8, num_layers=2, train_length=128)
positions = build_position_method("alibi", config)
x = torch.randn(4, 128, 64)
mask = FutureMask(positions.bias(0, num_keys=128), num_queries=128, num_keys=128)
for layer in layers:
    x = layer(x, mask)
print(f"{len(layers)} layers with ALiBi: output {tuple(x.shape)}, standard deviation {x.std():.2f}")
