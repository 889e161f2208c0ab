"""No position method: the model infers positions from the causal mask alone.

Papers: Haviv et al. 2022, https://arxiv.org/abs/2203.16634; Kazemnejad et al. 2023,
https://arxiv.org/abs/2305.19466.

Formula: softmax(q·k/√D) over the keys that are not in the future.
Cost: none.
Past the training length: degrades.
"""

from .base import PositionMethod


class NoPositions(PositionMethod):
    """Acts nowhere."""
