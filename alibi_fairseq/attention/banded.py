"""ALiBi on the CPU, each head only as far back as its window reaches.

The bias is folded into the matrix product: with q' = [m, −m·i, q/√D, −r_i] and k' = [j, 1, k, 1]
the product is q·k/√D − m·(i − j) − r_i. Positions count from the middle of the block of queries at
hand and come first, so the numbers are small and, for slopes that are powers of two, exact where
the attention is. The reference r_i is the query's own score in the forward pass and the logarithm
of the row's sum in the backward pass: the product then is an exponent as it comes. Sums of rows are
a product with one more feature of the values. What remains are matrix products, one pass of exp and
one of multiplication over scores that stay in the cache.

The (head, sequence) pairs are shared out among the cores, each of which computes its own from start
to end. All views are made beforehand: threads of Python that do little but call short operations
wait for each other. Memory: O(T·D), as the backward pass computes the weights again.

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

from .certificate import Certificate
from .side_by_side import run_side_by_side

#: Queries per block: small beside most windows, so that little is computed in vain.
BLOCK = 128
#: Scores that a core works on at a time, where one block of one pair is less.
WORKSPACE = 2**18
#: exp() of more than this, summed over a long row, could overflow.
LARGEST_EXPONENT = 60.0


class Group(NamedTuple):
    """Heads ``first … last - 1`` (of the sorted ones) that look back equally far."""

    first: int
    last: int
    window: int
    shift: bool  # the exponents may be too large: take off the maximum of each row


def attend(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, certificate: Certificate) -> Tensor:
    """Causal attention with ALiBi inside the certified windows.

    Args:
        q: (B, H, T, D) unscaled queries; k, v: (B, H, S, D), the last T belong to the queries.
        slopes: (H,) fp32.
        certificate: of these q and k.

    Returns:
        (B, H, T, D) in the type of v.
    """
    windows = certificate.windows.tolist()
    order = sorted(range(len(windows)), key=windows.__getitem__)
    groups = _groups(certificate, order, k.shape[2])
    return _Banded.apply(q, k, v, slopes, certificate.own, order, groups)


def _groups(certificate: Certificate, order: list, keys: int) -> list[Group]:
    groups: list[Group] = []
    columns = torch.stack([certificate.windows, certificate.rise])[:, order].T.tolist()
    for head, (window, rise) in enumerate(columns):
        window = min(keys, math.ceil(window / 64) * 64)
        group = Group(head, head + 1, window, shift=not rise < LARGEST_EXPONENT)
        if groups and groups[-1][2:] == group[2:]:
            group = group._replace(first=groups.pop().first)
        groups.append(group)
    return groups


class _Operands:
    """The tensors of one call with heads in front and features appended."""

    def __init__(self, q, k, slopes, reference, order):
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
        """(B, H, T, D) -> (H, B, T, front + D + back), heads in order; extra features are unset."""
        batch, heads, length, width = x.shape
        wide = x.new_empty(heads, batch, length, front + width + back, dtype=self.dtype)
        wide[..., front : front + width] = self._sorted(x, 1).transpose(0, 1)
        return wide

    def heads_back(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """(H, B, T, D) -> (B, H, T, D), heads where they came from.

        Laid out as (T, B, H, D), so that joining the heads behind it copies nothing.
        """
        if self.order is not None:
            x = x[sorted(range(len(self.order)), key=self.order.__getitem__)]
        return x.permute(2, 1, 0, 3).to(dtype).contiguous().permute(1, 2, 0, 3)

    def compute_in_blocks(
        self, groups: list[Group], views: Callable[..., tuple], compute: Callable[..., None]
    ) -> None:
        """Call ``compute(*views(group, pairs, queries, keys, space))`` for all blocks, side by side.

        ``pairs``, ``queries`` and ``keys`` are slices, ``space`` has room for two times their scores.
        """
        shares = self._shares(groups)
        longest = min(max(group.window for group in groups) + BLOCK, self.keys)
        largest = max(WORKSPACE, BLOCK * longest)
        spaces = self.q.new_empty(len(shares), 2, largest)
        line = torch.arange(-self.keys, BLOCK, dtype=self.dtype) - BLOCK // 2
        tasks = []
        for share, space in zip(shares, spaces, strict=True):
            steps = []
            for group, first, last in share:
                for queries, keys in self.blocks(group):
                    n, count = queries.stop - queries.start, keys.stop - keys.start
                    positions = self.k_pairs[first:last, keys, 0]  # (G, K)
                    steps.append((positions.copy_, (line[self.keys + n - count : self.keys + n],)))
                    step = max(1, WORKSPACE // (n * count))
                    for pair in range(first, last, step):
                        pairs = slice(pair, min(pair + step, last))
                        steps.append((compute, views(group, pairs, queries, keys, space)))
            tasks.append(steps)
        run_side_by_side([functools.partial(_take, steps) for steps in tasks])

    def _shares(self, groups: list[Group]) -> list[list[tuple[Group, int, int]]]:
        """(group, first pair, one past the last) for each thread, about equally much work."""
        count = min(torch.get_num_threads(), self.q_pairs.shape[0])
        shares: list[list[tuple[Group, int, int]]] = [[] for _ in range(count)]
        loads = [0] * count
        for group in reversed(groups):  # much work first, so that the little evens out
            scores = sum((q.stop - q.start) * (k.stop - k.start) for q, k in self.blocks(group))
            pairs = [0] * count
            for _ in range((group.last - group.first) * self.batch):
                least = loads.index(min(loads))
                loads[least] += scores
                pairs[least] += 1
            first = group.first * self.batch
            for share, more in zip(shares, pairs, strict=True):
                if more:
                    share.append((group, first, first + more))
                    first += more
        return shares

    def blocks(self, group: Group) -> Iterator[tuple[slice, slice]]:
        """(queries, keys) of all blocks of a group."""
        offset = self.keys - self.queries
        for start in range(0, self.queries, BLOCK):
            stop = min(start + BLOCK, self.queries)
            yield slice(start, stop), slice(max(0, offset + start - group.window), offset + stop)


class _Banded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, slopes, own, order, groups):
        reference = own[:, order].transpose(0, 1).contiguous()  # (H, B, T)
        x = _Operands(q, k, slopes, reference, order)
        values = x.heads_first(v, back=1)  # (H, B, S, D + 1)
        values[..., -1] = 1
        sums = torch.empty_like(x.q[..., 2:])  # (H, B, T, D + 1): of weighted values, of weights
        highest = torch.zeros_like(reference)  # (H, B, T)
        pv, ps, ph = (t.flatten(0, 1) for t in (values, sums, highest))

        def views(group, pairs, queries, keys, space):
            qb, kb = x.q_pairs[pairs, queries], x.k_pairs[pairs, keys]
            scores, own_keys = _scores(qb, kb, space[0])
            highest = ph[pairs, queries] if group.shift else None
            return qb, kb.mT, pv[pairs, keys], scores, own_keys, highest, ps[pairs, queries]

        def compute(qb, kb, vb, scores, own_keys, highest, out):
            torch.bmm(qb, kb, out=scores)
            if highest is not None:
                _take_off_highest(scores, own_keys, highest)
            scores.exp_()
            own_keys.tril_()
            torch.bmm(scores, vb, out=out)

        x.compute_in_blocks(groups, views, compute)
        total = sums[..., -1]  # (H, B, T)
        result = x.heads_back(sums[..., :-1] / total[..., None], v.dtype)
        ctx.save_for_backward(q, k, v, slopes, result, reference + highest + total.log())
        ctx.order, ctx.groups = order, groups
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        q, k, v, slopes, result, log_sums = ctx.saved_tensors
        x = _Operands(q, k, slopes, log_sums, ctx.order)
        values = x.heads_first(v, back=1)  # (H, B, S, D + 1)
        values[..., -1] = 1
        grads = x.heads_first(grad, back=1)  # (H, B, T, D + 1)
        # The term that softmax takes off every row of the gradient of the weights, as a feature.
        grads[..., -1] = -(grads[..., :-1] * x.heads_first(result)).sum(-1)
        dq = torch.empty_like(x.q[..., 2:-1])  # (H, B, T, D)
        dk, dv = (torch.zeros_like(x.k[..., 2:-1]) for _ in range(2))  # (H, B, S, D)
        pv, pg, pdq, pdk, pdv = (t.flatten(0, 1) for t in (values, grads, dq, dk, dv))

        def views(group, pairs, queries, keys, space):
            qb, kb = x.q_pairs[pairs, queries], x.k_pairs[pairs, keys]
            vb, gb = pv[pairs, keys], pg[pairs, queries]
            weights, own_keys = _scores(qb, kb, space[0])
            slopes, _ = _scores(qb, kb, space[1])
            factors = (qb, kb.mT, gb, vb.mT, gb[..., :-1], qb[..., 2:-1], kb[..., 2:-1])
            results = (pdq[pairs, queries], pdk[pairs, keys], pdv[pairs, keys])
            return factors, results, (weights, weights.mT, own_keys), (slopes, slopes.mT)

        def compute(factors, results, weights, slopes):
            (qb, kb_t, gb, vb_t, g_only, q_only, k_only), (dqb, dkb, dvb) = factors, results
            (w, w_t, own_keys), (s, s_t) = weights, slopes
            torch.bmm(qb, kb_t, out=w).exp_()
            own_keys.tril_()
            torch.bmm(gb, vb_t, out=s).mul_(w)
            dvb.baddbmm_(w_t, g_only)
            dkb.baddbmm_(s_t, q_only)
            torch.bmm(s, k_only, out=dqb)

        x.compute_in_blocks(ctx.groups, views, compute)
        dq *= q.shape[3] ** -0.5
        dq, dk, dv = (x.heads_back(*pair) for pair in ((dq, q.dtype), (dk, k.dtype), (dv, v.dtype)))
        return dq, dk, dv, None, None, None, None


def _scores(qb: Tensor, kb: Tensor, space: Tensor) -> tuple[Tensor, Tensor]:
    """Room for the scores of a block, (G, n, K), and in it those of its own n keys, (G, n, n)."""
    pairs, n, keys = qb.shape[0], qb.shape[1], kb.shape[1]
    scores = space.as_strided((pairs, n, keys), (n * keys, keys, 1))
    return scores, scores[:, :, keys - n :]


def _take_off_highest(scores: Tensor, own_keys: Tensor, highest: Tensor) -> None:
    """Subtract the maximum of each row over the keys that it may see; leaves it in (G, n)."""
    ahead = torch.ones(own_keys.shape[1:], dtype=torch.bool).triu_(1)
    own_keys.masked_fill_(ahead, -torch.inf)
    torch.amax(scores, -1, out=highest)
    scores.sub_(highest.unsqueeze(-1))


def _take(steps: list[tuple[Callable, tuple]]) -> None:
    for function, arguments in steps:
        function(*arguments)
