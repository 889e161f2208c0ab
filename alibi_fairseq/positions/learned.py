"""Learned absolute position embeddings, equal to fairseq's.

Paper: Gehring et al. 2017, https://arxiv.org/abs/1705.03122. As in fairseq's
``LearnedPositionalEmbedding``, position p has row ``padding_idx + 1 + p`` of one table, initialized
from N(0, 1/C).

Formula: x_p = token_p + table_p.
Cost: train_length · C parameters, and one addition per token.
Past the training length: the table has no row, which is an error. With ``clamp_learned_positions``
the last row is reused, and perplexity is poor.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..errors import UserInputError
from ..options import option
from .base import PositionConfig, PositionMethod


@dataclass(frozen=True)
class LearnedOptions:
    """Options of learned positions."""

    clamp_learned_positions: bool = option(
        "reuse the last position embedding past the training length", False
    )


class Learned(PositionMethod):
    """Learned positions, the only method with parameters that depend on the training length."""

    Options = LearnedOptions
    options: LearnedOptions

    def __init__(self, config: PositionConfig):
        super().__init__(config)
        rows = config.train_length + config.padding_idx + 1
        self.weight = nn.Parameter(torch.empty(rows, config.embed_dim))
        nn.init.normal_(self.weight, std=config.embed_dim**-0.5)
        with torch.no_grad():
            self.weight[config.padding_idx] = 0

    def embed(self, positions: Tensor) -> Tensor:
        """Return position embeddings, (B, T, C).

        Raises:
            UserInputError: if a position is past the table and positions are not clamped.
        """
        last = self.config.train_length - 1
        if self.options.clamp_learned_positions:
            positions = positions.clamp(max=last)
        elif self._may_exceed(positions) and int(positions.max()) > last:
            raise UserInputError(
                f"Learned positions are limited to the training length of {last + 1} tokens, and a "
                f"sequence has {int(positions.max()) + 1}. Evaluate at {last + 1} tokens or fewer, "
                "or reuse the last position: alibi-fairseq eval --model-overrides "
                "'{\"clamp_learned_positions\": true}' (fairseq-eval-lm takes "
                "\"{'clamp_learned_positions': True}\" instead)."
            )
        padding = self.config.padding_idx
        return nn.functional.embedding(positions + padding + 1, self.weight, padding)  # (B, T, C)

    def _may_exceed(self, positions: Tensor) -> bool:
        """Return False if no position can exceed the table, without waiting for the device.

        In training nothing is cached, so T tokens have positions below T.
        """
        known = self.training and positions.shape[1] <= self.config.train_length
        return positions.numel() > 0 and not known
