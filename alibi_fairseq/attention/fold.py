"""ALiBi in a causal kernel without a bias argument, folded into extra head dimensions.

−m·(i − j) is a sum of two products of a query feature and a key feature: with q' = [m·√D, i, q] and
k' = [j, −m·√D, k], q'·k'/√D is q·k/√D − m·(i − j). Memory is O(T·D): the bias is never a matrix.

Precision: m·j alone is large far from the start of the text, and its rounding would matter even in
fp32 (8e-5 in the weights at 16k keys). Therefore the slope is split into three parts of 8 bits, whose
products with positions up to 65,536 are exact in a kernel's fp32 sums, and the terms of query and
key are adjacent and come first, where they cancel before anything else is added. In fp32 the output
then differs from float64 by less than 5e-6 of its largest value at any length (tested). In bf16 and
fp16 positions are split into two parts and i is not needed: softmax ignores what all keys of a row
have in common, and rounding fp32 sums of up to m·S is finer than these types.

The gates of FoX add c_i − c_j (:class:`~alibi_fairseq.positions.GateBias`), which is folded likewise:
c_i·1 and 1·(−c_j), each in parts whose largest ones cancel first.

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys visible to it, D head size,
E extra dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from ..positions import GateBias
from ..positions.alibi import LinearBias
from .eager import QUERY_BLOCK, query_blocks
from .future_mask import FutureMask

#: Slopes are split into that many numbers of 8 significant bits.
SLOPE_PARTS = 3
#: Positions are split into multiples of this and a remainder, each with at most 8 significant bits.
RADIX = 256
#: Extra head dimensions; kernels require head sizes that are multiples of 8.
EXTRA = 8


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Why this backend cannot compute a call, or None."""
    if not (mask.bias is None or isinstance(mask.bias, (LinearBias, GateBias))):
        return "fold supports no bias other than ALiBi and gates"
    if mask.key_padding is not None:
        return "fold does not support padding in front of tokens"
    if mask.window:
        return "fold does not support an attention window"
    if mask.document_start is not None:
        return "fold does not support several documents in a window"
    if dropout_p > 0 and q.device.type == "cpu":
        return "fold has no attention dropout on the CPU"
    if q.dtype == torch.float16 and isinstance(mask.bias, GateBias):
        return "fold has no room for running sums of gates in fp16"
    if k.shape[2] > _max_positions(q.dtype):
        return f"fold supports at most {_max_positions(q.dtype)} keys in {q.dtype}"
    return None


def _max_positions(dtype: torch.dtype) -> int:
    digits = round(1 / torch.finfo(dtype).eps) * 2  # integers up to here are exact
    if digits >= RADIX**2:
        return digits
    return min(digits * RADIX, int(torch.finfo(dtype).max))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    width = q.shape[-1]
    if isinstance(mask.bias, LinearBias):
        slopes = mask.bias.slopes(q.device)
        for_queries, for_keys = mask.shared(
            ("fold", q.device, q.dtype), lambda: extra_dimensions(slopes, mask, width, q.dtype)
        )
        q, k = _prepend(for_queries, q), _prepend(for_keys, k)  # (B, H, T or S, E + D)
        v = pad(v, (0, EXTRA))  # fused kernels require equal widths
    elif isinstance(mask.bias, GateBias):
        for_queries, for_keys = gate_dimensions(mask.bias.total, mask.offset, width, q.dtype)
        q, k = torch.cat([for_queries, q], dim=-1), torch.cat([for_keys, k], dim=-1)
        v = pad(v, (0, EXTRA))
    if mask.offset == 0:
        out = scaled_dot_product_attention(
            q, k, v, dropout_p=dropout_p, is_causal=True, scale=width**-0.5
        )
        return out[..., :width]
    # Here, as it imports torch's compiler, which takes longer than the rest of this package.
    from torch.nn.attention.bias import causal_lower_right

    # On the CPU torch materialises the causal mask when there are more keys than queries.
    block = QUERY_BLOCK if q.device.type == "cpu" else mask.queries
    outputs = [
        scaled_dot_product_attention(
            q[:, :, start:stop],
            k[:, :, :visible],
            v[:, :, :visible],
            attn_mask=causal_lower_right(stop - start, visible),
            dropout_p=dropout_p,
            scale=width**-0.5,
        )
        for start, stop, visible in query_blocks(mask.queries, mask.offset, block)
    ]
    return torch.cat(outputs, dim=2)[..., :width]


def extra_dimensions(
    slopes: Tensor, mask: FutureMask, width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """What to prepend to the queries (H, T, E) and the keys (H, S, E) for slopes (H,) in fp32.

    The kernel divides by the square root of the head size ``width``.
    """
    places = torch.arange(mask.keys, device=slopes.device).double()  # (S,)
    coarse, fine = places - places % RADIX, places % RADIX
    rest = slopes.double()[:, None] * width**0.5  # (H, 1)
    for_queries, for_keys = [], []
    for _ in range(SLOPE_PARTS):
        part = rest.bfloat16().double()
        rest = rest - part
        if torch.finfo(dtype).eps <= 2.0**-23:
            for_queries += [part, places[mask.offset :]]
            for_keys += [places, -part]
        else:
            for_queries += [part, part]
            for_keys += [coarse, fine]

    def joined(columns: list[Tensor], length: int) -> Tensor:
        wide = torch.stack([column.expand(len(slopes), length) for column in columns], dim=-1)
        return pad(wide, (0, EXTRA - len(columns))).to(dtype)

    return joined(for_queries, mask.queries), joined(for_keys, mask.keys)


def gate_dimensions(
    total: Tensor, offset: int, width: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """What to prepend to the queries (B, H, T, E) and the keys (B, H, S, E) for gates.

    ``total`` is (B, H, S), running sums in fp64. Only the keys' part has a gradient: what all scores
    of a query have in common has none behind softmax.
    """
    rest = (total - total[..., -1:].detach()) * width**0.5
    parts = []
    if dtype == torch.float32:
        parts.append(rest.detach().round())  # integers, whose differences are exact
    elif dtype != torch.float64:
        for _ in range(EXTRA // 2 - 1):
            parts.append((rest.detach() - sum(parts)).to(dtype).double())
    parts.append(rest - sum(parts))
    count = len(parts)
    for_keys = torch.stack(parts, dim=-1)  # (B, H, S, parts)
    for_queries = for_keys[:, :, offset:].detach()
    ones = torch.ones_like
    pairs = (
        torch.stack([for_queries, ones(for_queries)], dim=-1),
        torch.stack([ones(for_keys), -for_keys], dim=-1),
    )
    room = (0, EXTRA - 2 * count)
    for_queries, for_keys = (pad(pair.flatten(3).to(dtype), room) for pair in pairs)
    return for_queries, for_keys


def _prepend(extra: Tensor, x: Tensor) -> Tensor:
    """(H, n, E), (B, H, n, D) -> (B, H, n, E + D)."""
    return torch.cat([extra.expand(x.shape[0], *extra.shape), x], dim=-1)
