"""ALiBi on the CPU, each head only as far back as its window reaches.

The bias is folded into the matrix product: with q' = [m, −m·i, q/√D, −r_i] and k' = [j, 1, k, 1]
the product is q·k/√D − m·(i − j) − r_i. Positions count from the middle of the block of queries at
hand and come first, so the numbers are small and, for slopes that are powers of two, exact where
the attention is. The reference r_i is the query's own score in the forward pass and the logarithm
of the row's sum in the backward pass: the product then is an exponent as it comes. What remains are
matrix products, one pass of exp and one of multiplication over scores that stay in the cache.

Weights that are tiny beyond any effect would be denormal numbers, on which a CPU's matrix product
is an order of magnitude slower: ALiBi's far keys are exactly that, and are set to zero.

Memory: O(T·D), as the backward pass computes the weights again.

Shapes: B batch, H heads, T queries, S keys, D head size, n queries of a block, K keys of a block,
G (head, sequence) pairs that share a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .certificate import Certificate

#: Queries per block: small enough that little of the causal triangle is computed in vain.
BLOCK = 128
#: Scores held at a time, about 4 MB in fp32: they stay in the cache.
WORKSPACE = 2**20
#: exp() of more than this, summed over a long row, could overflow.
LARGEST_EXPONENT = 60.0


class Group(NamedTuple):
    """Heads ``first … last - 1`` (of the sorted ones) that look back equally far."""

    first: int
    last: int
    window: int
    shift: bool  # the exponents may be too large: take off the maximum of each row
    cut: bool  # the exponents may be so small that they end up denormal


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
    groups = _groups(certificate, order, slopes, k.shape[2])
    return _Banded.apply(q, k, v, slopes, certificate.own, order, groups)


def _groups(certificate: Certificate, order: list, slopes: Tensor, keys: int) -> list[Group]:
    smallest = -smallest_exponent(certificate.own.dtype)
    heads = torch.stack(
        [certificate.windows, certificate.rise, certificate.fall, slopes.to(certificate.own.dtype)]
    )
    groups: list[Group] = []
    columns = heads[:, order].T.tolist()
    for head, (window, rise, fall, slope) in enumerate(columns):
        window = min(keys, math.ceil(window / (BLOCK // 2)) * (BLOCK // 2))
        shift = not rise < LARGEST_EXPONENT
        cut = not fall + slope * min(window + BLOCK, keys) < smallest
        group = Group(head, head + 1, window, shift, cut)
        if groups and groups[-1][2:] == group[2:]:
            group = group._replace(first=groups.pop().first)
        groups.append(group)
    return groups


def smallest_exponent(dtype: torch.dtype) -> float:
    """Weights below e^this of the query's own are zero: their sum over any row is lost in rounding,
    and they are far enough from denormal numbers to be multiplied with small gradients.
    """
    return 3 * math.log(torch.finfo(dtype).eps)


class _Operands:
    """The tensors of one call with heads in front, features appended, and a place for scores."""

    def __init__(self, q, k, slopes, reference, order):
        heads, keys, width = q.shape[1], k.shape[2], q.shape[3]
        self.dtype = reference.dtype
        self.order = order if order != list(range(heads)) else None
        self.offset = keys - q.shape[2]
        slope = self._sorted(slopes.to(self.dtype), 0)[:, None, None]  # (H, 1, 1)
        local = torch.arange(q.shape[2], dtype=self.dtype, device=q.device) % BLOCK - BLOCK // 2
        self.q = self.heads_first(q, 2, 1)  # (H, B, T, 2 + D + 1)
        self.q[..., 0] = slope
        self.q[..., 1] = -slope * local
        self.q[..., 2:-1] *= width**-0.5
        self.q[..., -1] = -reference
        self.k = self.heads_first(k, 2, 1)  # (H, B, S, 2 + D + 1)
        self.k[..., 1] = 1
        self.k[..., -1] = 1
        self.positions = torch.arange(keys, dtype=self.dtype, device=q.device)

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

    def blocks(self, group: Group) -> Iterator[tuple[slice, slice, slice]]:
        """(pairs, queries, keys) of all blocks of a group; sets the positions of the keys."""
        queries, pairs = self.q.shape[2], (group.last - group.first) * self.q.shape[1]
        k = self.k[group.first : group.last].flatten(0, 1)  # (G, S, 2 + D + 1)
        for start in range(0, queries, BLOCK):
            stop = min(start + BLOCK, queries)
            base = self.offset + start
            visible = slice(max(0, base - group.window), self.offset + stop)
            k[:, visible, 0] = self.positions[visible] - (base + BLOCK // 2)
            scores = (stop - start) * (visible.stop - visible.start)
            step = max(1, WORKSPACE // scores)
            for first in range(0, pairs, step):
                yield slice(first, min(first + step, pairs)), slice(start, stop), visible

    def workspace(self, group: Group) -> Tensor:
        largest = min(group.window + BLOCK, self.k.shape[2]) * BLOCK
        return self.q.new_empty(max(largest, WORKSPACE))


def _weights(scores: Tensor, n: int, cut: bool) -> Tensor:
    """exp(scores) in place, zero in the future and where no effect is left."""
    if cut:
        scores.clamp_(min=smallest_exponent(scores.dtype))
    scores.exp_()
    scores[:, :, scores.shape[2] - n :].tril_()
    if cut:
        smallest = math.exp(smallest_exponent(scores.dtype) + 1)
        torch.nn.functional.threshold_(scores, smallest, 0.0)
    return scores


class _Banded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, slopes, own, order, groups):
        reference = own[:, order].transpose(0, 1).contiguous()  # (H, B, T)
        x = _Operands(q, k, slopes, reference, order)
        values = x.heads_first(v)  # (H, B, S, D)
        out = torch.empty_like(x.q[..., 2:-1])  # (H, B, T, D)
        log_sums = torch.empty_like(reference)  # (H, B, T)
        for group in groups:
            heads = slice(group.first, group.last)
            gq, gk, gv, go, gl = (t[heads].flatten(0, 1) for t in (x.q, x.k, values, out, log_sums))
            space = x.workspace(group)
            for pairs, queries, keys in x.blocks(group):
                qb, kb = gq[pairs, queries], gk[pairs, keys]  # (G, n, 2 + D + 1), (G, K, 2 + D + 1)
                scores = _product(qb, kb, space)  # (G, n, K)
                n = qb.shape[1]
                if group.shift:
                    highest = _highest(scores, n)  # (G, n, 1)
                    scores -= highest
                weights = _weights(scores, n, group.cut)
                total = weights.sum(-1, keepdim=True)  # (G, n, 1)
                torch.div(weights @ gv[pairs, keys], total, out=go[pairs, queries])
                log_sum = total.log_()
                gl[pairs, queries] = (log_sum + highest if group.shift else log_sum).squeeze(-1)
        log_sums += reference
        result = x.heads_back(out, v.dtype)
        ctx.save_for_backward(q, k, v, slopes, result, log_sums)
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
        for group in ctx.groups:
            heads = slice(group.first, group.last)
            gq, gk, gv, gg = (t[heads].flatten(0, 1) for t in (x.q, x.k, values, grads))
            gdq, gdk, gdv = (t[heads].flatten(0, 1) for t in (dq, dk, dv))
            space, more_space = x.workspace(group), x.workspace(group)
            for pairs, queries, keys in x.blocks(group):
                qb, kb, gb = gq[pairs, queries], gk[pairs, keys], gg[pairs, queries]
                weights = _weights(_product(qb, kb, space), qb.shape[1], group.cut)  # (G, n, K)
                slope = _product(gb, gv[pairs, keys], more_space).mul_(weights)  # (G, n, K)
                gdv[pairs, keys].baddbmm_(weights.transpose(1, 2), gb[..., :-1])
                gdk[pairs, keys].baddbmm_(slope.transpose(1, 2), qb[..., 2:-1])
                gdq[pairs, queries] = slope @ kb[..., 2:-1]
        dq *= q.shape[3] ** -0.5
        dq, dk, dv = (x.heads_back(*pair) for pair in ((dq, q.dtype), (dk, k.dtype), (dv, v.dtype)))
        return dq, dk, dv, None, None, None, None


def _product(a: Tensor, b: Tensor, space: Tensor) -> Tensor:
    """a @ b.T of every pair, (G, n, K), in the given memory."""
    shape = (a.shape[0], a.shape[1], b.shape[1])
    return torch.bmm(a, b.transpose(1, 2), out=space[: math.prod(shape)].view(shape))


def _highest(scores: Tensor, n: int) -> Tensor:
    """Maximum of each row over the keys that it may see, (G, n, 1)."""
    ahead = torch.ones(n, n, dtype=torch.bool, device=scores.device).triu_(1)
    scores[:, :, scores.shape[2] - n :].masked_fill_(ahead, -torch.inf)
    return scores.amax(-1, keepdim=True)
