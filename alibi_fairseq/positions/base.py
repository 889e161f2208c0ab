"""Base class of position methods, with five kinds of action.

A method overrides only what it needs:

1. on the token embeddings          ``embed``      (sinusoidal, learned)
2. on the queries and keys          ``rotation``   (rotary, xPos)
3. on the attention scores          ``bias``       (ALiBi, T5 bias, KERPLE, Sandwich)
4. through a memory of past states  ``memory_length`` and ``bias`` (Transformer-XL)
5. through features of the tokens   ``token_features`` with ``feature_bias`` (FoX, Inkling) or
                                    ``feature_rotation``, from the input of each layer

The decoder calls these methods and knows no method by name. ``layer_method`` returns the method of
each layer; only a ``LayerPattern`` has several. Positions are arguments. No method stores a
position, a length, or a mask between calls, so that training, evaluation, cached decoding, and
recurrence over segments use the same code.

Shapes: B batch, T queries (new tokens), S keys (cached or remembered tokens + T), H query heads,
G key and value heads, D head size, C model width, F features of a token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .options import read_options

#: A function from unrotated to rotated queries, (B, H, T, D), and keys, (B, G, T, D). G is H unless
#: groups of query heads share a key.
Rotation = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class PositionConfig:
    """Model properties available to a position method.

    Attributes:
        embed_dim: model width C.
        num_heads: number of query heads H.
        train_length: tokens per training sample; only ``learned`` sizes a parameter by it.
        padding_idx: index of the padding symbol in the dictionary; fairseq's absolute positions
            start one past it.
        seed: training seed, for values that are drawn once and not learned.
        options: options of the method, in its dataclass; None: the defaults.
        key_value_heads: number of key and value heads, as in the option; 0: as many as query heads.
    """

    embed_dim: int
    num_heads: int
    num_layers: int
    train_length: int
    padding_idx: int = 1
    seed: int = 1
    options: Any = None
    key_value_heads: int = 0

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads

    @property
    def num_key_value_heads(self) -> int:
        """Number G of key and value heads, each shared by H / G consecutive query heads."""
        return self.key_value_heads or self.num_heads


class ScoreBias:
    """Immutable term added to the scaled attention scores: softmax(q·k/√D + bias).

    The two kinds below compute it with ``at``, all others with ``block``. If ``needs_grad`` is
    true, the bias has learned parameters. It is then rebuilt in every layer instead of being
    shared, so that activation checkpointing sees every use of them.
    """

    needs_grad: bool = False

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        """Return the bias of consecutive queries and the first keys, without the causal mask.

        Args:
            q: (B, H, n, D) queries at consecutive positions from ``first_position`` on.
            k: (B, H, K, D) keys at positions ``0 … K - 1``, repeated for the heads that share one.

        Returns:
            Tensor that broadcasts to (B, H, n, K), fp32 or wider.
        """
        raise NotImplementedError


class RelativeBias(ScoreBias):
    """A score bias that depends only on the distance from the key to the query."""

    def at(self, distance: Tensor) -> Tensor:
        """Return the bias at each distance, (H, *distance.shape), in fp32.

        ``distance`` holds integers ≥ 0, query position − key position.
        """
        raise NotImplementedError


class QueryPositionBias(ScoreBias):
    """Score bias that depends on the distance and on the query position in its document."""

    def at(self, query_positions: Tensor, distance: Tensor) -> Tensor:
        """Return the bias of some queries at each distance.

        Args:
            query_positions: (B or 1, n) integers ≥ 0, position of each query in its own document.
            distance: (n, K) integers, query position − key position, ≥ 0.

        Returns:
            (B or 1, H, n, K) in fp32.
        """
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class FeatureBias(ScoreBias):
    """Base class of score biases that are computed in blocks from features of the tokens.

    Attributes:
        features: (B, heads, S, F) features of every key. Queries are the last keys.
    """

    features: Tensor

    needs_grad = True

    def of_queries(self, q: Tensor, first_position: int) -> Tensor:
        """Return the features of queries (B, H, n, D) from a position on."""
        stop = first_position + q.shape[2]
        return self.features[:, :, first_position:stop]  # (B, heads, n, F)

    def of_keys(self, k: Tensor) -> Tensor:
        """Return the features of the first keys (B, H, K, D)."""
        return self.features[:, :, : k.shape[2]]  # (B, heads, K, F)


@dataclass(frozen=True, eq=False)
class GateBias(ScoreBias):
    """Score bias of the gates of a layer: c_i − c_j, where c is the running sum of log gates.

    Attributes:
        running_sums: (B, H, S) c of every key, in fp64, since c grows with the length and only its
            differences matter.
    """

    running_sums: Tensor

    needs_grad = True

    def block(self, q: Tensor, k: Tensor, first_position: int) -> Tensor:
        stop = first_position + q.shape[2]
        precise = torch.promote_types(q.dtype, torch.float32)
        # Relative to the last query, so that nearby keys get the precision of the type.
        reference = self.running_sums[..., stop - 1 : stop].detach()  # (B, H, 1)
        relative = (self.running_sums[..., : k.shape[2]] - reference).to(precise)  # (B, H, K)
        return relative[..., first_position:stop, None] - relative[..., None, :]  # (B, H, n, K)


@dataclass(frozen=True)
class PendingBias(ScoreBias):
    """Placeholder for the bias of a method whose bias depends on the input of each layer.

    ``FutureMask.with_bias`` replaces it with the result of ``PositionMethod.feature_bias``.
    """


@dataclass(frozen=True)
class NoOptions:
    """Options of a method that has none."""


class PositionMethod(nn.Module):
    """Base class of all methods, which has no effect by itself."""

    #: Dataclass of the options of the method, whose values are in ``self.options``.
    Options: type = NoOptions
    #: Name of a plugin's method in tables and figures (default: its registered name). A subclass
    #: does not inherit it.
    display_name: str = ""
    #: Number of past hidden states per layer that the method attends to; 0 for most methods.
    memory_length: int = 0
    #: True if the score of a query and a key depends on the number of keys in the forward pass.
    #: Such scores change when later tokens are appended, so evaluation computes each window
    #: separately.
    depends_on_key_count: bool = False
    #: Version of the formula. A correction that changes trained models increases it, so that models
    #: of both versions are not averaged.
    version: int = 1
    #: True if the features of a token are summed over all tokens up to it, in fp64.
    sums_features: bool = False

    def __init__(self, config: PositionConfig):
        super().__init__()
        self.config = config
        self.options: Any = config.options or read_options(self.Options, {})

    def layer_method(self, layer: int) -> tuple[PositionMethod, int]:
        """Return the method of a layer, and the index of the layer among those with that method."""
        return self, layer

    def embed(self, positions: Tensor) -> Tensor | None:
        """Return position embeddings, (B, T, C), or None.

        ``positions`` is (B, T) int64, 0-based in each token's own sequence, −1 at padding.
        """
        return None

    def rotation(self, start: int, length: int, device: torch.device) -> Rotation | None:
        """Return the function that rotates the queries and keys of new tokens, or None.

        Keys are rotated before they are cached, so a cached key is never rotated again. ``start``
        is the position of the first new token, which is the number of cached tokens.
        """
        return None

    def bias(self, layer: int, num_keys: int) -> ScoreBias | None:
        """Return the score bias of one layer, or None.

        Layers with equal biases share one mask, which is built once per forward pass for
        ``num_keys`` keys. A method with ``feature_bias`` does not override it.
        """
        has_feature_bias = type(self).feature_bias is not PositionMethod.feature_bias
        return PendingBias() if has_feature_bias else None

    def token_features(self, layer: int, x: Tensor) -> Tensor | None:
        """Return features of each token, (B, heads, T, F), or None.

        ``x`` is (T, B, C), the input of the layer's attention. A token's features must depend on
        its own row only. The number of heads is up to the method: H, G, or 1. The features of
        earlier tokens are cached next to their keys, summed along the text if ``sums_features``.
        The first token of the sums may be padding, so only differences of sums may matter.
        """
        return None

    def feature_bias(self, layer: int, features: Tensor) -> ScoreBias:
        """Return the score bias of one layer from the features of all keys, (B, heads, S, F)."""
        raise NotImplementedError

    def feature_rotation(self, layer: int, features: Tensor) -> Rotation | None:
        """Return the function that rotates queries and keys by the features of their tokens.

        ``features`` is (B, heads, T, F) for the T new tokens. The result gets queries (B, H, T, D)
        and keys (B, G, T, D), after ``rotation``, and before the keys are cached.
        """
        return None


class NoPositions(PositionMethod):
    """No positions, so that the model infers them from the causal mask alone.

    Papers: Haviv et al. 2022, https://arxiv.org/abs/2203.16634; Kazemnejad et al. 2023,
    https://arxiv.org/abs/2305.19466. Past the training length it degrades.
    """


def token_positions(real: Tensor, document_start: Tensor | None = None) -> Tensor:
    """Return 0-based positions of tokens, −1 at padding, which may be on either side.

    Args:
        real: (B, T) bool, True at tokens that are not padding.
        document_start: (B, T) int64, position of the first token of each token's document, where
            positions begin at 0 again; None if there is one document.
    """
    positions = real.cumsum(1) - 1
    if document_start is not None:
        positions = positions - positions.gather(1, document_start).clamp(min=0)
    return torch.where(real, positions, -1)
