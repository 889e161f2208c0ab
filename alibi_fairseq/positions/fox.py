"""FoX, the Forgetting Transformer: attention with a forget gate.

Papers: Lin et al. 2025, https://arxiv.org/abs/2503.02130; the same as CABLE (Veisi et al. 2025,
https://arxiv.org/abs/2503.08067) with the other sign of the gate's argument, since
log σ(z) = −softplus(−z).

Formula: softmax(q_i·k_j/√D + c_i − c_j), where c is the running sum of log σ(w_h·x + b_h) over the
tokens, x being the input of the layer's attention, with w and b learned for every head and layer. A gate
that is the same for all tokens is ALiBi with the slope −log σ(b_h). As in the authors' code w starts
normal with a deviation of 0.02 and b at 0, so that each token halves the weight of those before it. The
rest of their "Pro" block (output gate, normalised queries and keys, shifts) is not position and not here.
Cost: layers · H · (C + 1) parameters; one projection of C to H per layer, and the running sum (fp64,
S · H) in the cache. It folds into any causal kernel (:mod:`alibi_fairseq.attention.fold`), so no bias
is ever a matrix.
Past the training length: extrapolates, in its paper better than a Transformer without gates.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from .base import PositionConfig, PositionMethod


class Fox(PositionMethod):
    """Acts through gates; those of each layer are its own."""

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        # fairseq's pruning finds the parameters of a layer by the name "layers".
        self.layers = nn.ModuleList(
            nn.Linear(config.embed_dim, config.num_heads) for _ in range(config.num_layers)
        )
        for layer in self.layers:
            nn.init.normal_(layer.get_parameter("weight"), std=0.02)
            nn.init.zeros_(layer.get_parameter("bias"))

    def gate(self, layer: int, x: Tensor) -> Tensor:
        logits = self.layers[layer](x)  # (T, B, H)
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return logsigmoid(precise).permute(1, 2, 0)
