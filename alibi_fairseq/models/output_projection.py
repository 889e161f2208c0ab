"""Output layer without the symbols that an imported model lacks.

fairseq's dictionaries begin with ``<s>``, ``<pad>``, ``</s>``, and ``<unk>``. A model trained
elsewhere may have no output for some of them; any finite score would give them probability.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class OutputProjection(nn.Linear):
    """A linear layer without bias whose scores of excluded symbols are -inf.

    Args:
        weight: (V, C) parameter, possibly shared with the embeddings.
        excluded: indices of the excluded symbols.
    """

    excluded: Tensor

    def __init__(self, weight: nn.Parameter, excluded: list[int]):
        num_symbols, width = weight.shape
        super().__init__(width, num_symbols, bias=False, device="meta")
        self.weight = weight
        self.register_buffer("excluded", torch.tensor(excluded), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """(..., C) features -> (..., V) scores."""
        return super().forward(features).index_fill(-1, self.excluded, -torch.inf)


def parse_excluded_symbols(option: str) -> list[int]:
    """Read ``--excluded-symbols``."""
    if option == "none":
        return []
    return [int(index) for index in option.split(",")]
