"""fairseq's adaptive input, without waiting for a GPU.

Shapes: B batch, T tokens, C model width.
"""

from __future__ import annotations

import torch
from fairseq.modules import AdaptiveInput as FairseqAdaptiveInput
from torch import Tensor


class AdaptiveInput(FairseqAdaptiveInput):
    """The same parameters and values.

    fairseq's picks the tokens of each band with a mask, and the host waits three times per band for
    their number. On a GPU every band is computed for all tokens here and the right one is kept: a few
    more products, small beside one layer's, and no waiting.
    """

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens -> (B, T, C)."""
        if tokens.device.type == "cpu":
            return super().forward(tokens)
        return self.every_band(tokens)

    def every_band(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens -> (B, T, C)."""
        result, first = None, 0
        for end, embed in zip(self.cutoff, self.embeddings, strict=True):
            inside = (tokens >= first) & (tokens < end)  # (B, T)
            of_band = embed(torch.where(inside, tokens - first, 0))  # (B, T, C)
            of_band = of_band.to(self._float_tensor.dtype)
            chosen = inside.unsqueeze(-1)
            result = torch.where(chosen, of_band, 0 if result is None else result)
            first = end
        assert result is not None, "there is at least one band"
        return result
