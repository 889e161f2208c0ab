"""ALiBi folded into extra head dimensions, for causal kernels without a bias argument.

−m·(i − j) is a sum of two products of a query feature and a key feature: with q' = [m·√D, i, q] and
k' = [j, −m·√D, k], q'·k'/√D is q·k/√D − m·(i − j). Memory is O(T·D): the bias is never a matrix.

Precision: m·j is large far from the start of the text, and its rounding would matter even in fp32
(8e-5 in the weights at 16k keys). Therefore the slope is split into three parts of 8 bits, whose
products with positions up to 65,536 are exact in a kernel's fp32 sums. The terms of query and key
are adjacent and come first, so a kernel that adds products in this order cancels them before it
adds anything else, and the output differs from float64 by less than 5e-6 of its largest value at
any length. PyTorch's CPU kernel has another order for the keys or queries of an incomplete tile:
1,030 keys have an error of up to 3e-5, and 3 queries of 4,096 keys one of 2.4e-4 with the paper's
slopes, which grows with m·S. Tests check both. In bf16 and fp16 positions are split into two parts,
and i is not needed: softmax ignores a term that all keys of a row share, and rounding fp32 sums of
up to m·S is finer than these types.

The gates of FoX add c_i − c_j (:class:`~alibi_fairseq.positions.GateBias`). They are folded
in the same way, as c_i·1 and 1·(−c_j), each split into parts whose largest ones cancel first.

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys visible to it, D head
size, E extra dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from ..positions import GateBias
from ..positions.alibi import is_linear
from .eager import QUERY_BLOCK, query_blocks
from .future_mask import FutureMask, once_per_mask

#: Number of parts of a slope, each with 8 significant bits.
SLOPE_PARTS = 3
#: Positions are split into a multiple of this and a remainder, each with at most 8 significant
#: bits.
RADIX = 256
#: Extra head dimensions; kernels require head sizes that are multiples of 8.
EXTRA = 8


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Return the reason a call is unsupported, or None."""
    if not (mask.bias is None or is_linear(mask.bias) or isinstance(mask.bias, GateBias)):
        return "fold supports no bias other than ALiBi and gates"
    if mask.key_padding is not None:
        return "fold does not support left padding"
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
    """Return the largest number of keys whose positions a dtype represents exactly, in parts."""
    max_exact_integer = round(1 / torch.finfo(dtype).eps) * 2
    if max_exact_integer >= RADIX**2:
        return max_exact_integer
    return min(max_exact_integer * RADIX, int(torch.finfo(dtype).max))


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Return the output, (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    head_dim = q.shape[-1]
    bias = mask.bias
    if is_linear(bias):
        for_queries, for_keys = _slope_dimensions(mask, head_dim, q.device, q.dtype)
        q = _prepend(for_queries, q)  # (B, H, T, E + D)
        k = _prepend(for_keys, k)  # (B, H, S, E + D)
        v = pad(v, (0, EXTRA))  # fused kernels require equal widths
    elif isinstance(bias, GateBias):
        for_queries, for_keys = gate_dimensions(bias.running_sums, mask.offset, head_dim, q.dtype)
        q = torch.cat([for_queries, q], dim=-1)  # (B, H, T, E + D)
        k = torch.cat([for_keys, k], dim=-1)  # (B, H, S, E + D)
        v = pad(v, (0, EXTRA))
    scale = head_dim**-0.5
    if mask.offset == 0:
        output = scaled_dot_product_attention(
            q, k, v, dropout_p=dropout_p, is_causal=True, scale=scale
        )
        return output[..., :head_dim]
    # Not at the top: this imports PyTorch's compiler, which takes longer than the rest of the
    # package.
    from torch.nn.attention.bias import causal_lower_right

    # On the CPU PyTorch allocates the causal mask when there are more keys than queries.
    block_size = QUERY_BLOCK if q.device.type == "cpu" else mask.num_queries
    outputs = []
    for start, stop, visible in query_blocks(mask.num_queries, mask.offset, block_size):
        output = scaled_dot_product_attention(
            q[:, :, start:stop],
            k[:, :, :visible],
            v[:, :, :visible],
            attn_mask=causal_lower_right(stop - start, visible),
            dropout_p=dropout_p,
            scale=scale,
        )
        outputs.append(output)
    return torch.cat(outputs, dim=2)[..., :head_dim]


@once_per_mask
def _slope_dimensions(
    mask: FutureMask, head_dim: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return :func:`extra_dimensions` of a mask with ALiBi's bias."""
    assert is_linear(mask.bias)
    return extra_dimensions(mask.bias.slopes(device), mask, head_dim, dtype)


def extra_dimensions(
    slopes: Tensor, mask: FutureMask, head_dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return features that add ALiBi's bias when they are prepended to queries and keys.

    Args:
        slopes: (H,) in fp32.
        mask: gives T and S.
        head_dim: D; the kernel divides scores by √D.
        dtype: type of the result.

    Returns:
        (H, T, E) for the queries and (H, S, E) for the keys.
    """
    positions = torch.arange(mask.num_keys, device=slopes.device).double()  # (S,)
    query_positions = positions[mask.offset :]  # (T,)
    fine = positions % RADIX
    coarse = positions - fine
    rest = slopes.double()[:, None] * head_dim**0.5  # (H, 1)
    for_queries = []
    for_keys = []
    for _ in range(SLOPE_PARTS):
        part = rest.bfloat16().double()
        rest = rest - part
        if torch.finfo(dtype).eps <= 2.0**-23:
            for_queries += [part, query_positions]
            for_keys += [positions, -part]
        else:
            for_queries += [part, part]
            for_keys += [coarse, fine]

    def stack_features(features: list[Tensor], length: int) -> Tensor:
        expanded = [feature.expand(len(slopes), length) for feature in features]
        stacked = torch.stack(expanded, dim=-1)  # (H, length, 2 · SLOPE_PARTS)
        return pad(stacked, (0, EXTRA - len(features))).to(dtype)

    return stack_features(for_queries, mask.num_queries), stack_features(for_keys, mask.num_keys)


def gate_dimensions(
    total: Tensor, offset: int, head_dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return features that add the bias of gates when they are prepended to queries and keys.

    Only the features of keys have a gradient: a term that all scores of a query share has none
    after softmax.

    Args:
        total: (B, H, S) running sums in fp64.
        offset: number of keys before the first query, S − T.
        head_dim: D; the kernel divides scores by √D.
        dtype: type of the result.

    Returns:
        (B, H, T, E) for the queries and (B, H, S, E) for the keys.
    """
    rest = (total - total[..., -1:].detach()) * head_dim**0.5  # (B, H, S)
    parts = []
    if dtype == torch.float32:
        parts.append(rest.detach().round())  # integers, whose differences are exact
    elif dtype != torch.float64:
        for _ in range(EXTRA // 2 - 1):
            parts.append((rest.detach() - sum(parts)).to(dtype).double())
    parts.append(rest - sum(parts))
    of_keys = torch.stack(parts, dim=-1)  # (B, H, S, parts)
    of_queries = of_keys[:, :, offset:].detach()  # (B, H, T, parts)
    for_queries = torch.stack([of_queries, torch.ones_like(of_queries)], dim=-1)
    for_keys = torch.stack([torch.ones_like(of_keys), -of_keys], dim=-1)  # (B, H, S, parts, 2)
    unused = EXTRA - 2 * len(parts)
    for_queries = pad(for_queries.flatten(3).to(dtype), (0, unused))  # (B, H, T, E)
    for_keys = pad(for_keys.flatten(3).to(dtype), (0, unused))  # (B, H, S, E)
    return for_queries, for_keys


def _prepend(extra: Tensor, x: Tensor) -> Tensor:
    """Prepend features (H, n, E) to x (B, H, n, D), which gives (B, H, n, E + D)."""
    return torch.cat([extra.expand(x.shape[0], *extra.shape), x], dim=-1)
