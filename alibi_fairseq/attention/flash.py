"""flash-attn's kernel with ``alibi_slopes``, where that package is installed.

It adds −slope·|i + S − T − j| from fp32 slopes inside the kernel and aligns the causal mask to the
last key, which is what ALiBi needs. https://github.com/Dao-AILab/flash-attention (2.4 or newer;
FlashAttention-3 has no ALiBi, its issue #1666).

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import functools
import importlib

import torch
from torch import Tensor

from ..positions import ScoreBias
from ..positions.alibi import LinearBias
from .future_mask import FutureMask


def supports(bias: ScoreBias | None) -> bool:
    """ALiBi, and no bias."""
    return bias is None or isinstance(bias, LinearBias)


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
    if not supports(mask.bias):
        return "flash supports no bias other than ALiBi"
    if q.device.type != "cuda":
        return f"flash runs on NVIDIA GPUs, not on {q.device.type}"
    if q.dtype not in (torch.float16, torch.bfloat16):
        return f"flash computes in fp16 and bf16, not in {q.dtype}"
    if q.shape[-1] > 256:
        return f"flash has no kernel for head sizes above 256, such as {q.shape[-1]}"
    if mask.key_padding is not None:
        return "flash does not support padding in front of tokens"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    slopes = mask.bias.slopes(q.device) if isinstance(mask.bias, LinearBias) else None  # (H,) fp32
    output = _kernel()(
        *(x.transpose(1, 2) for x in (q, k, v)),  # (B, T, H, D)
        dropout_p=dropout_p,
        softmax_scale=q.shape[-1] ** -0.5,
        causal=True,
        window_size=(mask.window - 1, -1),  # keys before the query's own; -1 for no limit
        alibi_slopes=slopes,
    )
    return output.transpose(1, 2)  # (B, H, T, D)
