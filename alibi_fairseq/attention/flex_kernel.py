"""Compilation of PyTorch's FlexAttention, and the kernel options that a mask permits.

In evaluation, one kernel serves all lengths that are multiples of 128, and another one all others.
Without bounds checks, the former is about as fast as a kernel compiled for one length.
FlexAttention leaves out these checks only if the lengths are constants (``IS_DIVISIBLE`` in
https://github.com/pytorch/pytorch/blob/v2.11.0/torch/_inductor/kernel/flex/flex_attention.py), so
the option is set here.

In training, whose batches have one shape or a few, a kernel is compiled for each shape, because
the host starts it faster: on an H200, forward and backward of eight layers at 3,072 tokens took
14.4 ms with a kernel for all shapes and 10.1 ms with one for the shape, but 45.7 and 43.2 ms at
16,384 tokens (``results/benchmarks/attention-cuda.json``).

PyTorch's compiler is imported only when a kernel is compiled, since that takes as long as all other
imports of a command together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .future_mask import FutureMask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

#: Queries and keys per block of the mask, the size that the kernels are written for.
BLOCK = 128
#: Number of kernels that one process may compile. Their kinds differ in the bias, documents, the
#: relation of T and S, divisibility, a single sequence, gradients, and the dtype.
MAX_KERNELS = 64
#: Number of shapes of training calls that get a separate kernel each. It takes seconds to compile.
MAX_TRAINING_SHAPES = 4


def compiler_errors() -> tuple[type[Exception], ...]:
    """Return the errors of PyTorch's compiler, such as a kernel that exceeds a GPU's memory."""
    from torch._dynamo.exc import TorchDynamoException
    from torch._inductor.exc import InductorError

    return (TorchDynamoException, InductorError)


def kernel_options(mask: FutureMask, dtype: torch.dtype, has_table: bool) -> dict[str, bool | int]:
    """Return the options of the Triton kernel that a call may have.

    Args:
        mask: gives T, S, the attention window, and the documents.
        dtype: dtype of the queries.
        has_table: True if the bias is read from a table.
    """
    # With a window or documents, the first block that a query visits can be masked entirely. Its
    # maximum is then −inf, and a kernel that relies on safe rows returns NaN
    # (https://github.com/pytorch/pytorch/issues/194154).
    is_triangle = mask.window == 0 and mask.document_start is None
    options: dict[str, bool | int] = {
        "ROWS_GUARANTEED_SAFE": is_triangle,
        "BLOCKS_ARE_CONTIGUOUS": is_triangle,
        "IS_DIVISIBLE": mask.num_queries % BLOCK == 0 and mask.num_keys % BLOCK == 0,
    }
    if has_table and dtype != torch.float32:
        # With the default of three stages, reading a table exceeds a Hopper GPU's shared memory.
        options["num_stages"] = 2
    return options


def flex_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score_mod: Callable | None,
    blocks: BlockMask,
    options: dict[str, bool | int] | None,
) -> Tensor:
    """Call FlexAttention.

    Args:
        q: (B, H, T, D) unscaled queries.
        k, v: (B, H, S, D) keys and values.
        score_mod: function that adds the bias to one score, or None.
        blocks: blocks of keys that each block of queries attends to.
        options: options of the Triton kernel, or None.

    Returns:
        (B, H, T, D) in the dtype of ``q``.
    """
    import torch._dynamo

    for tensor in (q, k, v):  # a model has one number of heads and one head size
        torch._dynamo.mark_static(tensor, 1)
        torch._dynamo.mark_static(tensor, 3)
    attention = attention_for_one_shape if has_own_kernel(q, k) else attention_for_all_shapes
    with torch._dynamo.config.patch(recompile_limit=MAX_KERNELS):
        return attention()(q, k, v, score_mod, blocks, options)


_training_shapes: set[tuple[int, ...]] = set()


def has_own_kernel(q: Tensor, k: Tensor) -> bool:
    """Return True if a call is computed by a kernel that is compiled for its shape.

    These are calls with a backward pass, of the first ``MAX_TRAINING_SHAPES`` shapes.
    """
    if not (torch.is_grad_enabled() and q.requires_grad):
        return False
    shape = (*q.shape, k.shape[2])
    if len(_training_shapes) < MAX_TRAINING_SHAPES:
        _training_shapes.add(shape)
    return shape in _training_shapes


# The two functions that are compiled have separate code, since PyTorch keeps the kernels of a
# function with its code, whichever options it was compiled with.


@functools.lru_cache(maxsize=1)
def attention_for_all_shapes() -> Callable[..., Tensor]:
    """Return FlexAttention, compiled for all lengths at once."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(q, k, v, score_mod, blocks, options):
        return flex_attention(
            q, k, v, score_mod=score_mod, block_mask=blocks, kernel_options=options
        )

    return torch.compile(attention, dynamic=True, fullgraph=True)


@functools.lru_cache(maxsize=1)
def attention_for_one_shape() -> Callable[..., Tensor]:
    """Return FlexAttention, compiled again for each shape."""
    from torch.nn.attention.flex_attention import flex_attention

    def attention(q, k, v, score_mod, blocks, options):
        return flex_attention(
            q, k, v, score_mod=score_mod, block_mask=blocks, kernel_options=options
        )

    return torch.compile(attention, dynamic=False, fullgraph=True)
