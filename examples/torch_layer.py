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


torch.manual_seed(1)
layers = nn.ModuleList()
for _ in range(2):
    layers.append(Block(64, nhead=8, dropout=0.0, batch_first=True, norm_first=True))
config = PositionConfig(64, num_heads=8, num_layers=2, train_length=128)
positions = build_position_method("alibi", config)
bias = positions.bias(0, keys=128)
x = torch.randn(4, 128, 64)
mask = FutureMask(bias, queries=128, keys=128)
output = x
for layer in layers:
    output = layer(output, mask)

# The same layers with torch's own attention, which takes the bias as a (batch · heads, T, T) mask.
distance = torch.arange(128)[:, None] - torch.arange(128)  # (T, T)
dense = bias.at(distance.clamp(min=0)).masked_fill(distance < 0, -torch.inf)  # (H, T, T)
expected = x
for layer in layers:
    expected = nn.TransformerEncoderLayer.forward(layer, expected, dense.repeat(4, 1, 1))
torch.testing.assert_close(output, expected, rtol=0, atol=1e-4)
print(f"output {tuple(output.shape)} equals torch's own attention with the bias as a mask")
