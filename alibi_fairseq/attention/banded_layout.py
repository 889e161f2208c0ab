"""Memory layout and scheduling of :mod:`~alibi_fairseq.attention.banded`.

Shapes: B batch, H heads, T queries, S keys, D head size, n queries of a block, K keys of a block,
G (head, sequence) pairs that share a window.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .parallel import run_parallel

#: Queries per block: small compared with most windows, so that little is computed in vain.
BLOCK = 128
#: Scores that a core works on at a time, unless one block of one pair has more.
WORKSPACE = 2**18
#: Summing exp() of larger numbers over a long row could overflow.
LARGEST_EXPONENT = 60.0


class Group(NamedTuple):
    """Heads ``first … last - 1``, in order of their windows, that have the same window."""

    first: int
    last: int
    window: int
    subtract_max: bool  # exponents may exceed LARGEST_EXPONENT


class Block(NamedTuple):
    """Queries and the keys they may attend to."""

    queries: slice
    keys: slice

    @property
    def scores(self) -> int:
        """Number of scores of one pair."""
        return length_of(self.queries) * length_of(self.keys)


def group_heads(windows: Tensor, rise: Tensor, order: list[int], keys: int) -> list[Group]:
    """Groups of heads with the same window, in the given order of heads.

    Args:
        windows, rise: (H,) as in the certificate, their largest over the sequences.
        keys: number of keys S.
    """
    groups: list[Group] = []
    columns = torch.stack([windows, rise])[:, order].T.tolist()
    for head, (window, rise) in enumerate(columns):
        window = min(keys, math.ceil(window / 64) * 64)
        # Written so that NaN counts as too large.
        group = Group(head, head + 1, window, subtract_max=not rise < LARGEST_EXPONENT)
        if groups and groups[-1][2:] == group[2:]:
            group = group._replace(first=groups.pop().first)
        groups.append(group)
    return groups


class Operands:
    """Queries and keys of one call, heads first and extra features appended."""

    def __init__(self, q: Tensor, k: Tensor, slopes: Tensor, reference: Tensor, order: list[int]):
        heads, keys, width = q.shape[1], k.shape[2], q.shape[3]
        self.dtype = reference.dtype
        self.order = order if order != list(range(heads)) else None
        self.batch, self.queries, self.keys = q.shape[0], q.shape[2], keys
        slope = self._sorted(slopes.to(self.dtype), 0)[:, None, None]  # (H, 1, 1)
        self.q = self.heads_first(q, 2, 1)  # (H, B, T, 2 + D + 1)
        self.q[..., 0] = slope
        local = torch.arange(self.queries, dtype=self.dtype) % BLOCK - BLOCK // 2
        self.q[..., 1] = -slope * local
        self.q[..., 2:-1] *= width**-0.5
        self.q[..., -1] = -reference
        self.k = self.heads_first(k, 2, 1)  # (H, B, S, 2 + D + 1)
        self.k[..., 1] = 1
        self.k[..., -1] = 1
        self.q_pairs, self.k_pairs = self.q.flatten(0, 1), self.k.flatten(0, 1)

    def _sorted(self, x: Tensor, dim: int) -> Tensor:
        return x if self.order is None else x[(slice(None),) * dim + (self.order,)]

    def heads_first(self, x: Tensor, front: int = 0, back: int = 0) -> Tensor:
        """(B, H, T, D) -> (H, B, T, front + D + back), heads sorted; extra features are unset."""
        batch, heads, length, width = x.shape
        wide = x.new_empty(heads, batch, length, front + width + back, dtype=self.dtype)
        wide[..., front : front + width] = self._sorted(x, 1).transpose(0, 1)
        return wide

    def heads_back(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """(H, B, T, D) -> (B, H, T, D), heads in their original order.

        Laid out as (T, B, H, D), so that merging the heads afterwards needs no copy.
        """
        if self.order is not None:
            x = x[sorted(range(len(self.order)), key=self.order.__getitem__)]
        return x.permute(2, 1, 0, 3).to(dtype).contiguous().permute(1, 2, 0, 3)

    def compute_in_blocks(
        self,
        groups: list[Group],
        make_views: Callable[[Group, slice, Block, Tensor], Any],
        compute: Callable[[Any], None],
    ) -> None:
        """Call ``compute(make_views(group, pairs, block, workspace))`` for all blocks, in parallel.

        ``workspace`` is (2, N) with N at least the number of scores of the block.
        """
        shares = self._shares(groups)
        longest = min(max(group.window for group in groups) + BLOCK, self.keys)
        largest = max(WORKSPACE, BLOCK * longest)
        workspaces = self.q.new_empty(len(shares), 2, largest)
        line = torch.arange(-self.keys, BLOCK, dtype=self.dtype) - BLOCK // 2
        tasks = []
        for share, workspace in zip(shares, workspaces, strict=True):
            steps: list[tuple[Callable, Any]] = []
            for group, first, last in share:
                for block in self.blocks(group):
                    n, count = length_of(block.queries), length_of(block.keys)
                    positions = self.k_pairs[first:last, block.keys, 0]  # (G, K)
                    steps.append((positions.copy_, line[self.keys + n - count : self.keys + n]))
                    step = max(1, WORKSPACE // block.scores)
                    for pair in range(first, last, step):
                        pairs = slice(pair, min(pair + step, last))
                        steps.append((compute, make_views(group, pairs, block, workspace)))
            tasks.append(functools.partial(_run_steps, steps))
        run_parallel(tasks)

    def _shares(self, groups: list[Group]) -> list[list[tuple[Group, int, int]]]:
        """(group, first pair, one past the last) for each thread, about equally much work."""
        count = min(torch.get_num_threads(), self.q_pairs.shape[0])
        shares: list[list[tuple[Group, int, int]]] = [[] for _ in range(count)]
        loads = [0] * count
        for group in reversed(groups):  # longest windows first, so that short ones even out
            scores = sum(block.scores for block in self.blocks(group))
            pairs = [0] * count
            for _ in range((group.last - group.first) * self.batch):
                least_loaded = loads.index(min(loads))
                loads[least_loaded] += scores
                pairs[least_loaded] += 1
            first = group.first * self.batch
            for share, more in zip(shares, pairs, strict=True):
                if more:
                    share.append((group, first, first + more))
                    first += more
        return shares

    def blocks(self, group: Group) -> Iterator[Block]:
        """All blocks of a group."""
        offset = self.keys - self.queries
        for start in range(0, self.queries, BLOCK):
            stop = min(start + BLOCK, self.queries)
            first_key = max(0, offset + start - group.window)
            yield Block(slice(start, stop), slice(first_key, offset + stop))


def length_of(span: slice) -> int:
    """Number of items of a slice with explicit bounds."""
    return span.stop - span.start


def _run_steps(steps: list[tuple[Callable, Any]]) -> None:
    for function, argument in steps:
        function(argument)
