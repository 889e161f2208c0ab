"""flash-attn's kernel with ``alibi_slopes``, where that package is installed.

It adds −slope·|i + S − T − j| from fp32 slopes inside the kernel and aligns the causal mask to the
last key, which is what ALiBi needs. https://github.com/Dao-AILab/flash-attention (2.4 or newer;
FlashAttention-3 has no ALiBi, its issue #1666).

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import functools
import importlib
import math

import torch
from torch import Tensor

from ..positions.alibi import LinearBias
from .future_mask import FutureMask

#: Windows of neighbouring heads differ by at most this factor within one call of the kernel.
SIMILAR = 4
#: Windows are rounded up to the kernel's blocks of keys.
BLOCK = 128


@functools.lru_cache(maxsize=1)
def _kernel():
    try:
        return importlib.import_module("flash_attn").flash_attn_func
    except (ImportError, AttributeError):
        return None


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Why this backend cannot compute a call, or None."""
    if _kernel() is None:
        return "flash needs the package flash-attn (2.4 or newer), which is not installed"
    if not (mask.bias is None or isinstance(mask.bias, LinearBias)):
        return "flash supports no bias other than ALiBi"
    if q.device.type != "cuda":
        return f"flash runs on NVIDIA GPUs, not on {q.device.type}"
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"flash computes in fp16 and bf16, not in {q.dtype}"
    if q.shape[-1] > 256:
        return f"flash has no kernel for head sizes above 256, such as {q.shape[-1]}"
    if mask.key_padding is not None:
        return "flash does not support padding in front of tokens"
    if mask.document_start is not None:
        return "flash does not support several documents in a window"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    slopes = mask.bias.slopes(q.device) if isinstance(mask.bias, LinearBias) else None  # (H,) fp32
    return _call(q, k, v, slopes, dropout_p, mask.window - 1)


def attend_within(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, windows: Tensor) -> Tensor:
    """ALiBi, of slopes (H,) in fp32, that may leave out keys further away than ``windows``, (H,)."""
    outputs = []
    # The kernel takes a window as a number, so the host has to wait for it once in each layer.
    for first, last, window in group_heads(windows.tolist(), k.shape[2]):
        heads = slice(first, last)
        outputs.append(_call(q[:, heads], k[:, heads], v[:, heads], slopes[heads], 0.0, window))
    return torch.cat(outputs, dim=1)  # (B, H, T, D)


def group_heads(windows: list[float], keys: int) -> list[tuple[int, int, int]]:
    """(first head, one past the last, window) of neighbouring heads with similar windows.

    Each group is one call of the kernel; a window of −1 is no limit.
    """
    groups: list[tuple[int, int, int]] = []
    shortest = 0
    for head, exact in enumerate(windows):
        window = math.ceil(exact / BLOCK) * BLOCK
        if groups:
            first, _, longest = groups[-1]
            if max(window, longest) <= SIMILAR * min(window, shortest):
                groups[-1] = first, head + 1, max(window, longest)
                shortest = min(window, shortest)
                continue
        groups.append((head, head + 1, window))
        shortest = window
    return [(first, last, w if w < keys else -1) for first, last, w in groups]


def _call(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, dropout_p: float, window: int
) -> Tensor:
    """The kernel on (B, H, T or S, D); ``window`` keys before the query's own, or all if negative."""
    output = _kernel()(
        *(x.transpose(1, 2) for x in (q, k, v)),  # (B, T, H, D)
        dropout_p=dropout_p,
        softmax_scale=q.shape[-1] ** -0.5,
        causal=True,
        window_size=(window, -1),
        alibi_slopes=slopes,
    )
    return output.transpose(1, 2)  # (B, H, T, D)
