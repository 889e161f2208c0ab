"""FoX, the Forgetting Transformer: attention with a forget gate.

Papers: Lin et al. 2025, https://arxiv.org/abs/2503.02130. CABLE (Veisi et al. 2025,
https://arxiv.org/abs/2503.08067) is the same with the opposite sign of the gate's argument, since
log σ(z) = −softplus(−z).

Formula: softmax(q_i·k_j/√D + c_i − c_j), where c is the cumulative sum of log σ(w_h·x + b_h) over
the tokens, and x is the input of the layer's attention. w and b are learned for every head and
layer. A gate that is equal for all tokens is ALiBi with slope −log σ(b_h). As in the authors' code,
w starts normal with standard deviation 0.02 and b at 0, so that each token halves the weight of
earlier ones. The rest of their "Pro" block (output gate, normalized queries and keys, shifts) does
not concern positions and is omitted.
Cost: layers · H · (C + 1) parameters, and one projection of C to H per layer. The KV cache also
has the cumulative sum (fp64, S · H). The bias fits into any causal kernel
(:mod:`alibi_fairseq.attention.fold`), so that no bias matrix is needed.
Past the training length: extrapolates, in its paper better than a Transformer without gates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from .base import GateBias, PositionConfig, PositionMethod


class Fox(PositionMethod):
    """FoX, with separate gates in each layer."""

    sums_features = True

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.Linear(config.embed_dim, config.num_heads) for _ in range(config.num_layers)
        )
        for layer in self.layers:
            nn.init.normal_(layer.get_parameter("weight"), std=0.02)
            nn.init.zeros_(layer.get_parameter("bias"))

    def log_gates(self, layer: int, x: Tensor) -> Tensor:
        """Return the logarithm of each token's gate, (B, H, T) in fp32 or wider."""
        logits = self.layers[layer](x)  # (T, B, H)
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logsigmoid(precise).permute(1, 2, 0)

    def token_features(self, layer: int, x: Tensor) -> Tensor:
        return self.log_gates(layer, x)[..., None]  # (B, H, T, 1)

    def feature_bias(self, layer: int, features: Tensor) -> GateBias:
        return GateBias(features.squeeze(-1))  # (B, H, S)
