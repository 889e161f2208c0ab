"""ALiBi in a causal kernel that knows no bias: the term m·j written into extra head dimensions.

softmax cannot tell −m·(i − j) from m·(j − r) for any r that is the same for a whole row, and m·j is
a product of something of the query's head and something of the key: with q' = [q, m·√D] and
k' = [k, j − r], the kernel's q'·k'/√D is q·k/√D + m·(j − r).

Precision: r is the middle of a block of queries, so that |m·(j − r)| stays small where the
attention is. Slope and position are each split into parts that the type represents exactly (bf16
has 8 bits, fp16 11, fp32 24), so their products are exact in the kernel's sums, and what is left is
the rounding of sums of numbers up to m·block/2: against float64 the output is off by less than 5e-6
of its largest value in fp32 at any length (absolute positions: 8e-5 at 16k and growing).

Memory: O(T·D), whatever the kernel: the bias is never a matrix.

Shapes: B batch, H heads, T queries, S keys, n queries of a block, K keys it may see, D head size,
E extra dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import pad, scaled_dot_product_attention

from ..positions import ScoreBias
from ..positions.alibi import LinearBias
from .future_mask import FutureMask

#: Queries that share a reference position; the coarser the type, the more may.
BLOCK = {torch.float64: 1024, torch.float32: 128, torch.float16: 1024, torch.bfloat16: 1024}
#: Positions are split at this number: both parts then have at most 8 significant bits.
RADIX = 256
#: Kernels want head sizes that are multiples of this.
ALIGNMENT = 8


def expresses(bias: ScoreBias | None) -> bool:
    """ALiBi, and no bias."""
    return bias is None or isinstance(bias, LinearBias)


def refusal(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> str | None:
    """Why this call cannot be computed here, or None."""
    if not expresses(mask.bias):
        return "fold can express ALiBi and no other bias"
    if mask.key_padding is not None:
        return "fold cannot hide padding in front of tokens"
    if dropout_p > 0 and q.device.type == "cpu":
        return "fold has no attention dropout on the CPU"
    if k.shape[2] > _most_positions(q.dtype):
        return f"fold holds at most {_most_positions(q.dtype)} keys in {q.dtype}"
    return None


def _most_positions(dtype: torch.dtype) -> int:
    digits = round(1 / torch.finfo(dtype).eps) * 2  # integers up to here are exact
    if digits >= RADIX**2:
        return digits
    return min(digits * RADIX, int(torch.finfo(dtype).max)) - BLOCK[dtype]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    width = q.shape[-1]
    slopes = None if mask.bias is None else slope_parts(mask.bias.slopes(q.device), width, q.dtype)
    block, outputs = BLOCK[q.dtype], []
    for start in range(0, q.shape[2], block):
        q_block = q[:, :, start : start + block]  # (B, H, n, D)
        visible = mask.offset + start + q_block.shape[2]
        k_block, v_block = k[:, :, :visible], v[:, :, :visible]  # (B, H, K, D)
        if slopes is not None:
            positions = torch.arange(visible, device=q.device) - (visible - q_block.shape[2] // 2)
            positions = position_parts(positions, q.dtype)  # (P, K)
            q_block = _append(q_block, slopes.repeat_interleave(len(positions), 1)[:, None])
            k_block = _append(k_block, positions.repeat(slopes.shape[1], 1).T)
            v_block = pad(v_block, (0, q_block.shape[-1] - width))  # kernels want equal widths
        square = q_block.shape[2] == visible
        outputs.append(
            scaled_dot_product_attention(
                q_block,
                k_block,
                v_block,
                attn_mask=None if square else causal_lower_right(q_block.shape[2], visible),
                dropout_p=dropout_p,
                is_causal=square,
                scale=width**-0.5,
            )[..., :width]
        )
    return torch.cat(outputs, dim=2)


def slope_parts(slopes: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Numbers of a type whose sum is slope·√D to the precision of fp32.

    Args:
        slopes: (H,) fp32.
        width: head size D; the kernel will divide by its root.

    Returns:
        (H, P) in ``dtype``, largest part first.
    """
    rest = slopes.double() * width**0.5
    parts = []
    for _ in range({torch.bfloat16: 3, torch.float16: 3, torch.float32: 2}.get(dtype, 1)):
        parts.append(rest.to(dtype))
        rest = rest - parts[-1].double()
    return torch.stack(parts, dim=-1)


def position_parts(positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers of a type whose sum is the position exactly.

    Args:
        positions: (K,) integers.

    Returns:
        (P, K) in ``dtype``.
    """
    if torch.finfo(dtype).eps <= 2.0**-23:
        return positions.to(dtype)[None]
    low = positions % RADIX
    return torch.stack([positions - low, low]).to(dtype)


def _append(x: Tensor, extra: Tensor) -> Tensor:
    """(B, H, n, D) with extra (..., E) -> (B, H, n, D + E), rounded up to the alignment."""
    width = x.shape[-1] + extra.shape[-1]
    extra = pad(extra, (0, -width % ALIGNMENT))
    return torch.cat([x, extra.expand(*x.shape[:-1], extra.shape[-1])], dim=-1)
