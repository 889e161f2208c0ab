"""ALiBi attention on the CPU, restricted per head to the window that its certificate allows.

The bias is folded into the matrix product: with q' = [m, −m·i, q/√D, −r_i] and k' = [j, 1, k, 1]
the product is q·k/√D − m·(i − j) − r_i. Positions are relative to the middle of the current block
of queries and come first, so the numbers are small and, for slopes that are powers of two, exact
near the diagonal. The reference r_i is the query's score with its own key in the forward pass and
the row's log-sum-exp in the backward pass, so the product can be exponentiated as it is. Row sums
are one more feature of the product with the values. What remains is matrix products plus one exp
and one multiplication per score, over scores that stay in the cache.

The (head, sequence) pairs are divided among the cores, each of which computes its pairs from start
to end. All views are created beforehand: Python threads that mostly issue short operations would
otherwise wait for the interpreter lock. Memory: O(T·D); the backward pass recomputes the weights.

Shapes: B batch, H heads, T queries, S keys, D head size, n queries of a block, K keys of a block,
G (head, sequence) pairs that share a window.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .thread_pool import run_parallel

#: Queries per block: small compared with most windows, so that little work is wasted.
BLOCK = 128
#: Scores that a core works on at a time, unless one block of one pair has more.
WORKSPACE = 2**18
#: Summing exp() of larger numbers over a long row could overflow.
LARGEST_EXPONENT = 60.0


def attend(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, own: Tensor, rise: Tensor, windows: Tensor
) -> Tensor:
    """Compute causal attention with ALiBi inside the certified windows.

    Args:
        q: (B, H, T, D) unscaled queries.
        k, v: (B, H, S, D) keys and values. The last T belong to the queries.
        slopes: (H,) fp32.
        own, rise, windows: certificate of q and k
            (:class:`~alibi_fairseq.attention.skipping.Certificate`).

    Returns:
        (B, H, T, D) in the dtype of ``v``.
    """
    # One window for the whole batch: the sequences of a head are computed in the same blocks.
    windows = windows.amax(dim=0)  # (H,)
    rise = rise.amax(dim=0)  # (H,)
    order = windows.argsort(stable=True).tolist()
    groups = group_heads(windows, rise, order, k.shape[2])
    return _Banded.apply(q, k, v, slopes, own, order, groups)


class _Banded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, slopes, own, order, groups):
        reference = own[:, order].transpose(0, 1).contiguous()  # (H, B, T)
        operands = Operands(q, k, slopes, reference, order)
        values = operands.heads_first(v, back=1)  # (H, B, S, D + 1)
        values[..., -1] = 1
        # Sums of the weighted values and, as the last feature, of the weights.
        sums = torch.empty_like(operands.q[..., 2:])  # (H, B, T, D + 1)
        row_max = torch.zeros_like(reference)  # (H, B, T)
        v_pairs = values.flatten(0, 1)  # (H · B, S, D + 1), likewise below
        sum_pairs = sums.flatten(0, 1)
        max_pairs = row_max.flatten(0, 1)

        def prepare(group: HeadGroup, pairs: slice, block: Block, workspace: Tensor) -> Callable:
            q_block = operands.q_pairs[pairs, block.queries]  # (G, n, 2 + D + 1)
            k_transposed = operands.k_pairs[pairs, block.keys].mT  # (G, 2 + D + 1, K)
            v_block = v_pairs[pairs, block.keys]  # (G, K, D + 1)
            scores, diagonal = room_for_scores(pairs, block, workspace[0])
            block_max = max_pairs[pairs, block.queries]  # (G, n)
            block_sums = sum_pairs[pairs, block.queries]  # (G, n, D + 1)

            def compute() -> None:
                torch.bmm(q_block, k_transposed, out=scores)
                if group.subtract_max:
                    future = torch.ones(diagonal.shape[1:], dtype=torch.bool).triu_(1)
                    diagonal.masked_fill_(future, -torch.inf)
                    torch.amax(scores, -1, out=block_max)
                    scores.sub_(block_max.unsqueeze(-1))
                scores.exp_()
                diagonal.tril_()
                torch.bmm(scores, v_block, out=block_sums)

            return compute

        operands.compute_in_blocks(groups, prepare)
        total = sums[..., -1]  # (H, B, T)
        result = operands.heads_back(sums[..., :-1] / total[..., None], v.dtype)
        ctx.save_for_backward(q, k, v, slopes, result, reference + row_max + total.log())
        ctx.order = order
        ctx.groups = groups
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, slopes, result, log_sum_exp = ctx.saved_tensors
        operands = Operands(q, k, slopes, log_sum_exp, ctx.order)
        values = operands.heads_first(v, back=1)  # (H, B, S, D + 1)
        values[..., -1] = 1
        grads = operands.heads_first(grad, back=1)  # (H, B, T, D + 1)
        # −Σ dO·O, which softmax subtracts from each row of the weights' gradient, as a feature.
        grads[..., -1] = -(grads[..., :-1] * operands.heads_first(result)).sum(-1)
        dq = torch.empty_like(operands.q[..., 2:-1])  # (H, B, T, D)
        dk = torch.zeros_like(operands.k[..., 2:-1])  # (H, B, S, D)
        dv = torch.zeros_like(operands.k[..., 2:-1])  # (H, B, S, D)
        v_pairs = values.flatten(0, 1)  # (H · B, S, D + 1), likewise below
        grad_pairs = grads.flatten(0, 1)
        dq_pairs = dq.flatten(0, 1)
        dk_pairs = dk.flatten(0, 1)
        dv_pairs = dv.flatten(0, 1)

        def prepare(group: HeadGroup, pairs: slice, block: Block, workspace: Tensor) -> Callable:
            q_block = operands.q_pairs[pairs, block.queries]  # (G, n, 2 + D + 1)
            k_block = operands.k_pairs[pairs, block.keys]  # (G, K, 2 + D + 1)
            grad_block = grad_pairs[pairs, block.queries]  # (G, n, D + 1)
            q_features = q_block[..., 2:-1]  # (G, n, D)
            k_features = k_block[..., 2:-1]  # (G, K, D)
            grad_features = grad_block[..., :-1]  # (G, n, D)
            k_transposed = k_block.mT
            v_transposed = v_pairs[pairs, block.keys].mT
            weights, diagonal = room_for_scores(pairs, block, workspace[0])
            dscores, _ = room_for_scores(pairs, block, workspace[1])
            weights_transposed = weights.mT
            dscores_transposed = dscores.mT
            dq_block = dq_pairs[pairs, block.queries]  # (G, n, D)
            dk_block = dk_pairs[pairs, block.keys]  # (G, K, D)
            dv_block = dv_pairs[pairs, block.keys]  # (G, K, D)

            def compute() -> None:
                torch.bmm(q_block, k_transposed, out=weights).exp_()
                diagonal.tril_()
                torch.bmm(grad_block, v_transposed, out=dscores).mul_(weights)
                dv_block.baddbmm_(weights_transposed, grad_features)
                dk_block.baddbmm_(dscores_transposed, q_features)
                torch.bmm(dscores, k_features, out=dq_block)

            return compute

        operands.compute_in_blocks(ctx.groups, prepare)
        dq *= q.shape[3] ** -0.5
        pairs = ((dq, q.dtype), (dk, k.dtype), (dv, v.dtype))
        return *(operands.heads_back(x, dtype) for x, dtype in pairs), None, None, None, None


def room_for_scores(pairs: slice, block: Block, workspace: Tensor) -> tuple[Tensor, Tensor]:
    """Return views of the workspace for the scores of a block of queries.

    Returns:
        All scores (G, n, K), and the scores of the keys at the queries' own positions, (G, n, n).
    """
    count = slice_length(pairs)
    n = slice_length(block.queries)
    num_keys = slice_length(block.keys)
    scores = workspace.as_strided((count, n, num_keys), (n * num_keys, num_keys, 1))
    return scores, scores[:, :, num_keys - n :]


class HeadGroup(NamedTuple):
    """Heads ``first … last - 1``, in order of their windows, with the same window."""

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
        return slice_length(self.queries) * slice_length(self.keys)


def group_heads(windows: Tensor, rise: Tensor, order: list[int], num_keys: int) -> list[HeadGroup]:
    """Group heads with the same window, in the given order of heads.

    Args:
        windows, rise: (H,) of the certificate, the largest over the sequences.
        order: heads by increasing window.
        num_keys: S.
    """
    groups: list[HeadGroup] = []
    columns = torch.stack([windows, rise])[:, order].T.tolist()
    for head, (exact_window, head_rise) in enumerate(columns):
        window = min(num_keys, math.ceil(exact_window / 64) * 64)
        # Written so that NaN counts as too large.
        subtract_max = not head_rise < LARGEST_EXPONENT
        first = head
        if groups:
            last_group = groups[-1]
            if last_group.window == window and last_group.subtract_max == subtract_max:
                first = last_group.first
                groups.pop()
        groups.append(HeadGroup(first, head + 1, window, subtract_max))
    return groups


class Operands:
    """Queries and keys of one call, heads first and extra features appended."""

    def __init__(self, q: Tensor, k: Tensor, slopes: Tensor, reference: Tensor, order: list[int]):
        self.batch, heads, self.num_queries, head_dim = q.shape
        self.num_keys = k.shape[2]
        self.dtype = reference.dtype
        self.order = order if order != list(range(heads)) else None  # None: nothing to sort
        slope = self._sorted(slopes.to(self.dtype), 0)[:, None, None]  # (H, 1, 1)
        self.q = self.heads_first(q, 2, 1)  # (H, B, T, 2 + D + 1)
        self.q[..., 0] = slope
        local = torch.arange(self.num_queries, dtype=self.dtype) % BLOCK - BLOCK // 2
        self.q[..., 1] = -slope * local
        self.q[..., 2:-1] *= head_dim**-0.5
        self.q[..., -1] = -reference
        self.k = self.heads_first(k, 2, 1)  # (H, B, S, 2 + D + 1)
        self.k[..., 1] = 1
        self.k[..., -1] = 1
        self.q_pairs = self.q.flatten(0, 1)  # (H · B, T, 2 + D + 1)
        self.k_pairs = self.k.flatten(0, 1)  # (H · B, S, 2 + D + 1)

    def _sorted(self, x: Tensor, dim: int) -> Tensor:
        """Return ``x`` with the heads, in dimension ``dim``, in the order of computation."""
        if self.order is None:
            return x
        return x[(slice(None),) * dim + (self.order,)]

    def heads_first(self, x: Tensor, front: int = 0, back: int = 0) -> Tensor:
        """Return (B, H, T, D) as (H, B, T, front + D + back) with sorted heads and unset extras."""
        batch, heads, length, width = x.shape
        wide = x.new_empty(heads, batch, length, front + width + back, dtype=self.dtype)
        wide[..., front : front + width] = self._sorted(x, 1).transpose(0, 1)
        return wide

    def heads_back(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return (H, B, T, D) as (B, H, T, D), heads in their original order.

        The memory layout is (T, B, H, D), so merging the heads afterwards needs no copy.
        """
        if self.order is not None:
            x = x[sorted(range(len(self.order)), key=self.order.__getitem__)]
        return x.permute(2, 1, 0, 3).to(dtype).contiguous().permute(1, 2, 0, 3)

    def compute_in_blocks(
        self,
        groups: list[HeadGroup],
        prepare: Callable[[HeadGroup, slice, Block, Tensor], Callable],
    ) -> None:
        """Compute all blocks in parallel.

        ``prepare(group, pairs, block, workspace)`` returns the function that computes one block.
        ``workspace`` is (2, N), where N is at least the number of scores of the block.
        """
        shares = self._shares(groups)
        longest = min(max(group.window for group in groups) + BLOCK, self.num_keys)
        largest = max(WORKSPACE, BLOCK * longest)
        workspaces = self.q.new_empty(len(shares), 2, largest)
        line = torch.arange(-self.num_keys, BLOCK, dtype=self.dtype) - BLOCK // 2
        tasks = []
        for share, workspace in zip(shares, workspaces, strict=True):
            steps: list[Callable] = []
            for group, first, last in share:
                for block in self.blocks(group):
                    n = slice_length(block.queries)
                    count = slice_length(block.keys)
                    positions = self.k_pairs[first:last, block.keys, 0]  # (G, K)
                    of_block = line[self.num_keys + n - count : self.num_keys + n]
                    steps.append(functools.partial(positions.copy_, of_block))
                    step = max(1, WORKSPACE // block.scores)
                    for pair in range(first, last, step):
                        pairs = slice(pair, min(pair + step, last))
                        steps.append(prepare(group, pairs, block, workspace))
            tasks.append(functools.partial(_run_steps, steps))
        run_parallel(tasks)

    def _shares(self, groups: list[HeadGroup]) -> list[list[tuple[HeadGroup, int, int]]]:
        """Divide the pairs among threads into ranges (group, first pair, one past the last)."""
        count = min(torch.get_num_threads(), self.q_pairs.shape[0])
        shares: list[list[tuple[HeadGroup, int, int]]] = [[] for _ in range(count)]
        loads = [0] * count
        for group in reversed(groups):  # longest windows first, so that short ones even out
            scores = sum(block.scores for block in self.blocks(group))
            pairs = [0] * count
            for _ in range((group.last - group.first) * self.batch):
                least_loaded = loads.index(min(loads))
                loads[least_loaded] += scores
                pairs[least_loaded] += 1
            first = group.first * self.batch
            for share, num_pairs in zip(shares, pairs, strict=True):
                if num_pairs:
                    share.append((group, first, first + num_pairs))
                    first += num_pairs
        return shares

    def blocks(self, group: HeadGroup) -> Iterator[Block]:
        """Yield all blocks of a group."""
        offset = self.num_keys - self.num_queries
        for start in range(0, self.num_queries, BLOCK):
            stop = min(start + BLOCK, self.num_queries)
            first_key = max(0, offset + start - group.window)
            yield Block(slice(start, stop), slice(first_key, offset + stop))


def slice_length(span: slice) -> int:
    """Return the number of items of a slice with explicit bounds."""
    return span.stop - span.start


def _run_steps(steps: list[Callable]) -> None:
    for step in steps:
        step()
