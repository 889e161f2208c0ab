"""Position methods with one mistake each, found by one check each.

Each is a mistake that a plugin's author could make. ``WORKING`` has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from feature_methods import MixedDistance, SelectiveRotation, rotate_by, slopes_of
from torch import Tensor, nn

from alibi_fairseq.positions import PositionMethod, RelativeBias, Rotation, ScoreBias
from alibi_fairseq.positions.alibi import LinearBias


@dataclass(frozen=True)
class DistanceBias(ScoreBias):
    """Bias −slope·distance, computed in blocks."""

    num_heads: int

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        queries = first_position + torch.arange(q.shape[2])
        distance = queries[:, None] - torch.arange(k.shape[2])
        return -slopes_of(self.num_heads) * distance


class Working(PositionMethod):
    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        return DistanceBias(self.config.num_heads)


def rotate(x: Tensor, start: int, frequency: Tensor | float = 1.0) -> Tensor:
    """Rotate pairs of features by their position times a frequency."""
    positions = torch.arange(start, start + x.shape[2], dtype=torch.float32)
    return rotate_by(x, positions[:, None] * frequency)


def head_frequencies(heads: int) -> Tensor:
    return 1.0 + torch.arange(heads).view(heads, 1, 1)


class RotatesHeadsDifferently(PositionMethod):
    """Rotation with a frequency per key head, correct for grouped heads."""

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        key_frequencies = head_frequencies(self.config.num_key_value_heads)
        group = self.config.num_heads // self.config.num_key_value_heads
        query_frequencies = key_frequencies.repeat_interleave(group, dim=0)
        return lambda q, k: (
            rotate(q, start, query_frequencies),
            rotate(k, start, key_frequencies),
        )


class TakesKeyHeadsForQueryHeads(PositionMethod):
    """The same with a frequency per query head, wrong for grouped heads."""

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        frequencies = head_frequencies(self.config.num_heads)
        return lambda q, k: (rotate(q, start, frequencies), rotate(k, start, frequencies))


class ForgetsCachedTokens(PositionMethod):
    """Rotation that counts every call from 0: wrong with cached keys."""

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation:
        return lambda q, k: (rotate(q, 0), rotate(k, 0))


@dataclass(frozen=True)
class PromptBias(DistanceBias):
    """Bias that takes several queries for a prompt, which begins at position 0."""

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        return super().block(q, k, first_position if q.shape[2] == 1 else 0)


class IgnoresFirstQuery(PositionMethod):
    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        return PromptBias(self.config.num_heads)


@dataclass(frozen=True)
class CoarseBias(DistanceBias):
    """Bias from positions in the precision of the model."""

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        positions = torch.arange(k.shape[2], dtype=q.dtype)
        distance = positions[first_position : first_position + q.shape[2], None] - positions
        return -slopes_of(self.num_heads) * distance


class RoundsPositions(PositionMethod):
    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        return CoarseBias(self.config.num_heads)


@dataclass(frozen=True)
class RootBias(RelativeBias):
    """Bias −√(slope·distance), whose derivative at distance 0 is not finite."""

    method: RootOfLearnedSlope
    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        return -(self.method.slopes[:, None] * distance.flatten()).sqrt().view(-1, *distance.shape)


class RootOfLearnedSlope(PositionMethod):
    def __init__(self, config):
        super().__init__(config)
        self.slopes = nn.Parameter(torch.ones(config.num_heads))

    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        return RootBias(self)


@dataclass(frozen=True)
class LearnedBias(RelativeBias):
    """Bias −slope·distance with learned slopes, which does not say so."""

    method: ForgetsNeedsGrad

    def at(self, distance: Tensor) -> Tensor:
        return -self.method.slopes.view(-1, *[1] * distance.dim()) * distance


class ForgetsNeedsGrad(PositionMethod):
    def __init__(self, config):
        super().__init__(config)
        self.slopes = nn.Parameter(slopes_of(config.num_heads).flatten())

    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        return LearnedBias(self)


class HasUnusedParameter(Working):
    def __init__(self, config):
        super().__init__(config)
        self.unused = nn.Parameter(torch.ones(1))


def embeddings(positions: Tensor, width: int) -> Tensor:
    """Return sinusoidal embeddings of positions, zero at padding."""
    frequencies = 10000.0 ** (-torch.arange(width // 2) / (width // 2))
    angles = positions[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1) * positions.ge(0)[..., None]


class TakesRowsForEqual(PositionMethod):
    """Embeddings of the first row's positions: wrong with padding."""

    def embed(self, positions: Tensor) -> Tensor:
        return embeddings(positions[:1], self.config.embed_dim).expand(len(positions), -1, -1)


class CountsBackFromTheEnd(PositionMethod):
    """Embeddings that increase up to the last token: wrong if positions begin again."""

    def embed(self, positions: Tensor) -> Tensor:
        length = positions.shape[1]
        first = positions.amax(dim=1, keepdim=True) - length + 1
        return embeddings(first + torch.arange(length), self.config.embed_dim)


class EndsWithoutAWord(PositionMethod):
    """Table without rows for longer texts."""

    def __init__(self, config):
        super().__init__(config)
        self.table = nn.Embedding(config.train_length, config.embed_dim)

    def embed(self, positions: Tensor) -> Tensor:
        return self.table(positions.clamp(min=0))


class Overflows(PositionMethod):
    """Embeddings that are not finite past the training length."""

    def embed(self, positions: Tensor) -> Tensor:
        too_far = positions.ge(self.config.train_length)[..., None]
        return embeddings(positions, self.config.embed_dim).masked_fill(too_far, math.inf)


class ForgetsTheScaleInEvaluation(PositionMethod):
    """Slopes that are half as large in evaluation as in training."""

    def bias(self, layer: int, num_keys: int) -> ScoreBias:
        divisor = 1.0 if torch.is_grad_enabled() else 2.0
        return LinearBias(self.config.num_heads, divisor)


class SelectiveRotationOfEachQueryHead(SelectiveRotation):
    """Selective rotation that expects a key head per query head: wrong with grouped heads."""

    def __init__(self, config):
        super().__init__(replace(config, key_value_heads=config.num_heads))


class FeaturesOfTheCall(SelectiveRotation):
    """Features that depend on the other tokens of a call: wrong with cached keys."""

    def token_features(self, layer: int, x: Tensor) -> Tensor:
        return super().token_features(layer, x - x.mean(dim=0))


class LayersDiffer(PositionMethod):
    """Bias of the second layer only, which is correct."""

    def bias(self, layer: int, num_keys: int) -> ScoreBias | None:
        return DistanceBias(self.config.num_heads) if layer == 1 else None


WORKING = (Working, LayersDiffer, RotatesHeadsDifferently, SelectiveRotation, MixedDistance)
#: Method and the only check that fails.
BROKEN = (
    (ForgetsCachedTokens, "cached decoding"),
    (IgnoresFirstQuery, "blocks"),
    (SelectiveRotationOfEachQueryHead, "grouped heads"),
    (RoundsPositions, "bf16"),
    (RootOfLearnedSlope, "gradients"),
    (HasUnusedParameter, "gradients"),
    (ForgetsNeedsGrad, "gradients"),
    (TakesRowsForEqual, "left padding"),
    (CountsBackFromTheEnd, "documents"),
    (TakesKeyHeadsForQueryHeads, "grouped heads"),
    (EndsWithoutAWord, "4 × training length"),
    (Overflows, "4 × training length"),
    (ForgetsTheScaleInEvaluation, "backends"),
)
