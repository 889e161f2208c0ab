"""Causal mask of one forward pass, with the bias of the position method.

A mask is built once per forward pass and shared by all layers with an equal bias. It depends
neither on the batch size nor on any length seen in training, and it is never a (T, S) tensor unless
a backend requests all queries at once. A bias that depends on the distance alone makes a Toeplitz
mask: the mask of any block of queries is a column slice of the mask of the last block, so one band
of O(block · S) numbers is enough.

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys visible to that block,
D head size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..positions.base import (
    QueryPositionBias,
    RelativeBias,
    ScoreBias,
    token_positions,
)

#: Separators of documents: nothing, every ``</s>`` (one document per line), or an empty line, which
#: is a ``</s>`` after another one (the rule of ``--sample-break-mode complete_doc``).
SEPARATORS = ("none", "eos", "empty_line")


Result = TypeVar("Result")


def once_per_mask(function: Callable[..., Result]) -> Callable[..., Result]:
    """Compute a function of a mask once for all layers that share the mask.

    Args:
        function: function of a mask and more arguments, which are hashable. Its result must not
            depend on parameters that need a gradient.
    """

    @functools.wraps(function)
    def cached(mask: FutureMask, *arguments: Hashable) -> Result:
        key = (function, *arguments)
        if key not in mask._results:
            mask._results[key] = function(mask, *arguments)
        return mask._results[key]

    return cached


@dataclass(eq=False)
class FutureMask:
    """Causal mask with a score bias.

    Query t is at position ``offset + t``, where ``offset = num_keys - num_queries`` is the number
    of keys before the first query. Key s is at position s.

    Args:
        bias: score bias of the position method, or None.
        num_queries, num_keys: T and S ≥ T.
        key_padding: (B, S) bool, True at padding that would otherwise be visible to a real query. A
            padding query still attends to itself, so no row is empty and softmax stays finite.
        window: each query attends to its own key and the ``window - 1`` before it; 0: unlimited.
        document_start: (B, S) int64, position of the first key of each key's document, from
            :func:`start_of_each_document`. A query attends only to its own document. None if there
            is one document.

    """

    bias: ScoreBias | None
    num_queries: int
    num_keys: int
    key_padding: Tensor | None = None
    window: int = 0
    document_start: Tensor | None = None
    _bands: dict[tuple[torch.device, torch.dtype], Tensor] = field(
        default_factory=dict, init=False, repr=False
    )
    _results: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self):
        self.offset = self.num_keys - self.num_queries
        if self.window >= self.num_keys:
            self.window = 0

    @property
    def is_plain_causal(self) -> bool:
        """True if the mask is the causal triangle and nothing else."""
        unlimited = self.key_padding is None and self.document_start is None and self.window == 0
        return self.bias is None and self.offset == 0 and unlimited

    def with_bias(self, bias: ScoreBias | None) -> FutureMask:
        """Return a copy of this mask with the bias of a single layer.

        The copy shares the results of :func:`once_per_mask`, so this mask must not have a bias that
        backends derive values from.
        """
        mask = replace(self, bias=bias)
        mask._results = self._results
        return mask

    def first_key(self, first_query: int) -> int:
        """Return the first key visible to a query or a later one, in any sequence."""
        first = 0
        if self.window:
            first = max(0, self.offset + first_query + 1 - self.window)
        if self.document_start is None:
            return first
        return max(first, self._document_starts()[first_query])

    @once_per_mask
    def _document_starts(self) -> list[int]:
        """Return the first key of the documents of each query in all sequences, T numbers."""
        assert self.document_start is not None
        return self.document_start[:, self.offset :].amin(dim=0).tolist()  # waits for the device

    @once_per_mask
    def query_positions(self, device: torch.device) -> Tensor:
        """Return the position of each query in its own document, not counting padding.

        Returns:
            (B or 1, T) int64, ≥ 0.
        """
        real = torch.ones(1, self.num_keys, dtype=torch.bool, device=device)
        if self.key_padding is not None:
            real = ~self.key_padding
        elif self.document_start is not None:
            real = real.expand_as(self.document_start)
        positions = token_positions(real, self.document_start)  # (B or 1, S)
        return positions[:, self.offset :].clamp(min=0)

    def block(self, q: Tensor, k: Tensor, first_query: int, dtype: torch.dtype) -> Tensor:
        """Return the term to add to the scaled scores of consecutive queries.

        Args:
            q: (B, H, n, D) consecutive queries.
            k: (B, H, K, D) keys up to the last of these queries, K = offset + first_query + n.
            first_query: index of the first of these queries, 0 … T - 1; its position is ``offset``
                more.
            dtype: floating type of the result.

        Returns:
            Tensor that broadcasts to (B, H, n, K); −inf where a key is masked.
        """
        n = q.shape[2]
        visible = self.offset + first_query + n  # K
        if self.bias is None or isinstance(self.bias, RelativeBias):
            mask = self._relative(n, visible, q.device, dtype)
        else:
            distance = self._distance(n, visible, q.device)  # (n, K)
            if isinstance(self.bias, QueryPositionBias):
                query_positions = self.query_positions(q.device)[:, first_query : first_query + n]
                bias = self.bias.at(query_positions, distance.clamp(min=0))
            else:
                bias = self.bias.block(q, k, self.offset + first_query)
            mask = bias.masked_fill(distance < 0, -torch.inf).to(dtype)
            if self.window:
                mask = mask.masked_fill(distance >= self.window, -torch.inf)
        if self.document_start is not None:
            starts = self.document_start[:, None, visible - n : visible, None]  # (B, 1, n, 1)
            keys = torch.arange(visible, device=q.device)
            mask = mask.masked_fill(keys < starts, -torch.inf)
        if self.key_padding is not None:
            hidden = self.key_padding[:, None, None, :visible]  # (B, 1, 1, K)
            itself = self._distance(n, visible, q.device) == 0
            mask = mask.masked_fill(hidden & ~itself, -torch.inf)
        return mask

    def _relative(self, n: int, visible: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return the mask of the last n of ``visible`` positions, (1, H, n, K), cut from a band.

        In training a learned bias is rebuilt instead, because each layer needs a separate graph.
        """
        if self.bias is not None and self.bias.needs_grad and torch.is_grad_enabled():
            return self._band(n, visible, device).to(dtype)
        band = self._bands.get((device, dtype))
        if band is None or band.shape[2] < n:
            band = self._band(n, self.num_keys, device).to(dtype)
            self._bands[device, dtype] = band
        return band[:, :, band.shape[2] - n :, self.num_keys - visible :]

    def _band(self, n: int, visible: int, device: torch.device) -> Tensor:
        """Lay out one number per distance for n queries, (1, H or 1, n, K).

        The row of the last query has the distances from K − 1 down to 0. The row of the query
        before it is the same row shifted left by one, followed by the future.
        """
        if isinstance(self.bias, RelativeBias):
            line = self.bias.at(torch.arange(visible, device=device))  # (H, K)
        else:
            line = torch.zeros(1, visible, device=device)  # (1, K)
        if self.window:
            far = torch.arange(visible, device=device) >= self.window
            line = line.masked_fill(far, -torch.inf)
        future = line.new_full((line.shape[0], n - 1), -torch.inf)
        line = torch.cat([line.flip(1), future], dim=1)  # (H, K + n - 1)
        rows = line.unfold(1, visible, 1).flip(1)  # (H, n, K)
        # flip lays the rows out as columns, for which PyTorch has no fused attention on a GPU.
        return rows.contiguous().unsqueeze(0)  # (1, H, n, K)

    @staticmethod
    def _distance(n: int, visible: int, device: torch.device) -> Tensor:
        """Return query position − key position for the last n of ``visible`` positions, (n, K)."""
        queries = torch.arange(visible - n, visible, device=device)
        keys = torch.arange(visible, device=device)
        return queries[:, None] - keys[None, :]


def start_of_each_document(tokens: Tensor, eos: int, separator: str) -> Tensor | None:
    """Return the position of the first token of each token's document, for ``--block-diagonal``.

    fairseq's language models read ``</s>`` before the first token of a text and learn to predict it
    after the last one. In a window with several documents the ``</s>`` between two of them is both.
    As an input it belongs to the document that it starts.

    Args:
        tokens: (B, S) input tokens. Tokens before the first separator are one document.
        eos: token ID of ``</s>``.
        separator: one of ``SEPARATORS``.

    Returns:
        (B, S) int64, never decreasing along S; None if nothing separates documents.
    """
    if separator == "none":
        return None
    begins = tokens.eq(eos)  # (B, S)
    if separator == "empty_line":
        begins = begins & pad(begins, (1, -1))
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    return torch.where(begins, positions, 0).cummax(dim=1).values
