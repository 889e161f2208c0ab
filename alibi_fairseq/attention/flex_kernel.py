"""The compiled FlexAttention kernel, and the options it is compiled with.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, FlexKernelOptions, flex_attention

logger = logging.getLogger(__name__)

#: torch's own kernel. A query sees at least its own key, and the blocks it sees follow one another.
TRITON: FlexKernelOptions = {"ROWS_GUARANTEED_SAFE": True, "BLOCKS_ARE_CONTIGUOUS": True}
#: FlashAttention-4, from the package flash-attn-4: "experimental" in torch 2.13, so it is tried first.
FLASH: FlexKernelOptions = {"BACKEND": "FLASH"}
#: Largest difference between the two kernels, relative to the largest value: a few roundings.
SAME = {torch.bfloat16: 5e-2, torch.float16: 1e-2}


def flex_kernel(
    q: Tensor, k: Tensor, v: Tensor, score_mod: Callable | None, blocks: BlockMask
) -> Tensor:
    """Attention output (B, H, T, D) of q (B, H, T, D) and k, v (B, H, S, D)."""
    for x in (q, k, v):  # a model has one number of heads and one head size
        torch._dynamo.mark_static(x, 1)
        torch._dynamo.mark_static(x, 3)
    call = functools.partial(compiled(), score_mod=score_mod, block_mask=blocks)
    if q.device.type != "cuda":
        return call(q, k, v)
    flash = (
        q.dtype in SAME
        and flash_installed()
        and flash_agrees(call, q, k, v, blocks.mask_mod.__name__)
    )
    return call(q, k, v, kernel_options=FLASH if flash else TRITON)


@functools.lru_cache(maxsize=1)
def compiled() -> Callable[..., Tensor]:
    """Compiled for all lengths at once."""
    return torch.compile(flex_attention, dynamic=True, fullgraph=True)


@functools.lru_cache(maxsize=1)
def flash_installed() -> bool:
    """Whether this torch knows FlashAttention-4 and the package is there."""
    try:
        package = find_spec("flash_attn.cute")
    except ImportError:  # nothing called flash_attn
        return False
    return package is not None and "BACKEND" in FlexKernelOptions.__annotations__


#: Whether FlashAttention-4 does what torch's kernel does, by dtype, head size and kind of mask.
_agrees: dict[tuple[torch.dtype, int, str], bool] = {}


def flash_agrees(
    call: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: str = ""
) -> bool:
    """Whether the two kernels agree, forward and backward, on the first call of this kind.

    What FlashAttention-4 supports depends on the GPU and on both versions, and is found out only
    when it is compiled; the backward pass is compiled too late to fall back.
    """
    kind = (q.dtype, q.shape[-1], mask)
    if kind not in _agrees:
        try:
            found, expected = (_results(call, (q, k, v), options) for options in (FLASH, TRITON))
            _agrees[kind] = all(
                bool((a - b).abs().max() <= SAME[q.dtype] * b.abs().max())
                for a, b in zip(found, expected, strict=True)
            )
            problem = "its values differ"
        except Exception as error:  # compilers raise whatever they like
            _agrees[kind], problem = False, str(error).strip().split("\n")[0]
        if not _agrees[kind]:
            logger.warning(f"flash-attn-4 is not used for FlexAttention: {problem}")
    return _agrees[kind]


def _results(
    call: Callable[..., Tensor], inputs: tuple, options: FlexKernelOptions
) -> list[Tensor]:
    """Output and gradients in fp32."""
    with torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        out = call(*leaves, kernel_options=options)
        grads = torch.autograd.grad(out, leaves, torch.ones_like(out))
    return [x.detach().float() for x in (out, *grads)]
