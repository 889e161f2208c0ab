"""flash-attn's kernel with ``alibi_slopes``, if that package is installed.

The kernel adds −slope·|i + S − T − j| from fp32 slopes and aligns the causal mask to the last key,
as ALiBi requires. It needs https://github.com/Dao-AILab/flash-attention 2.4 or newer;
FlashAttention-3 has no ALiBi (Dao-AILab/flash-attention#1666).

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import functools
import importlib
import math

import torch
from torch import Tensor

from ..positions.alibi import is_linear
from .future_mask import FutureMask

#: Windows of neighboring heads differ by at most this factor within one call of the kernel.
MAX_WINDOW_RATIO = 4
#: Windows are rounded up to the kernel's blocks of keys.
BLOCK = 128


@functools.lru_cache(maxsize=1)
def _kernel():
    """Return flash-attn's function, or None if it is not installed."""
    try:
        return importlib.import_module("flash_attn").flash_attn_func
    except (ImportError, AttributeError):
        return None


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Return the reason a call is unsupported, or None."""
    if _kernel() is None:
        return "flash needs the package flash-attn (2.4 or newer), which is not installed"
    if not (mask.bias is None or is_linear(mask.bias)):
        return "flash supports no bias other than ALiBi"
    if q.device.type != "cuda":
        return f"flash runs on NVIDIA GPUs, not on {q.device.type}"
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"flash computes in fp16 and bf16, not in {q.dtype}"
    if q.shape[-1] > 256:
        return f"flash has no kernel for head sizes above 256, such as {q.shape[-1]}"
    if mask.key_padding is not None:
        return "flash does not support left padding"
    if mask.document_start is not None:
        return "flash does not support several documents in a window"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Return the output, (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    slopes = None
    if is_linear(mask.bias):
        slopes = mask.bias.slopes(q.device)  # (H,) fp32
    return _call(q, k, v, slopes, dropout_p, mask.window - 1)


def attend_within(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, windows: Tensor) -> Tensor:
    """Attend with ALiBi, with permission to skip distant keys.

    Args:
        q: (B, H, T, D) unscaled queries.
        k, v: (B, H, S, D) keys and values.
        slopes: (H,) in fp32.
        windows: (H,) floats. Keys at a greater distance may be skipped.

    Returns:
        (B, H, T, D) in the dtype of ``q``.
    """
    outputs = []
    # The kernel takes a window as a number, so the host has to wait for it once in each layer.
    for first, last, window in group_heads(windows.tolist(), k.shape[2]):
        heads = slice(first, last)
        output = _call(q[:, heads], k[:, heads], v[:, heads], slopes[heads], 0.0, window)
        outputs.append(output)
    return torch.cat(outputs, dim=1)  # (B, H, T, D)


def group_heads(windows: list[float], num_keys: int) -> list[tuple[int, int, int]]:
    """Group neighboring heads with similar windows, for one call of the kernel each.

    Args:
        windows: window of each head.
        num_keys: S.

    Returns:
        (first head, one past the last, window) per group. A window of −1 means no limit.
    """
    groups: list[tuple[int, int, int]] = []
    first = 0
    shortest = longest = _rounded_up(windows[0])
    for head in range(1, len(windows)):
        window = _rounded_up(windows[head])
        if max(window, longest) <= MAX_WINDOW_RATIO * min(window, shortest):
            shortest = min(window, shortest)
            longest = max(window, longest)
        else:
            groups.append((first, head, longest if longest < num_keys else -1))
            first = head
            shortest = longest = window
    groups.append((first, len(windows), longest if longest < num_keys else -1))
    return groups


def _rounded_up(window: float) -> int:
    return math.ceil(window / BLOCK) * BLOCK


def _call(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, dropout_p: float, window: int
) -> Tensor:
    """Call the kernel on (B, H, T, D) queries and (B, H, S, D) keys and values.

    ``window`` is the number of keys visible before the query's own; all are if it is negative.
    """
    output = _kernel()(
        q.transpose(1, 2),  # (B, T, H, D)
        k.transpose(1, 2),  # (B, S, H, D)
        v.transpose(1, 2),  # (B, S, H, D)
        dropout_p=dropout_p,
        softmax_scale=q.shape[-1] ** -0.5,
        causal=True,
        window_size=(window, -1),
        alibi_slopes=slopes,
    )
    return output.transpose(1, 2)  # (B, H, T, D)
