"""PyTorch's FlexAttention: the bias as a score modification, causality as a block mask.

The block mask is computed from counts alone, so nothing is evaluated over T × S and the host does
not wait for the device. The kernel is compiled once for each kind of call (as many keys as queries,
more keys, a single query, a single sequence, a window, documents, multiples of 128), not once per
length or batch size; only the first shapes of training have separate kernels. It has no attention
dropout, and no backward pass on the CPU.

Shapes: B batch, H heads, T queries, S keys, D head size, R blocks of queries, C blocks of keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from ..positions import RelativeBias
from ..positions.alibi import is_linear
from .flex_kernel import BLOCK, compiler_errors, flex_kernel, has_own_kernel, kernel_options
from .future_mask import FutureMask, once_per_mask

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

logger = logging.getLogger(__name__)


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Return the reason a call is unsupported, or None."""
    trained = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    if not (mask.bias is None or isinstance(mask.bias, RelativeBias)):
        return "flex supports only biases that depend on the distance alone"
    if q.device.type not in ("cpu", "cuda"):
        return f"flex does not run on {q.device.type}"
    if dropout_p > 0:
        return "flex has no attention dropout"
    if trained and q.device.type == "cpu":
        return "flex has no backward pass on the CPU"
    if torch.is_grad_enabled() and mask.bias is not None and mask.bias.needs_grad:
        return "flex does not train learned biases"
    if q.device.type == "cpu" and not (mask.bias is None or is_linear(mask.bias)):
        # PyTorch 2.13 writes C++ that does not compile for a lookup at a computed index.
        return "flex on the CPU does not support biases from a table"
    if mask.key_padding is not None:
        return "flex does not support left padding"
    if q.device.type == "cpu" and mask.document_start is not None:
        # A captured tensor whose sizes change: see _score_modification.
        return "flex on the CPU does not support several documents in a window"
    if q.device.type == "cpu" and _reads_past_keys(q.shape[-1]):
        return f"flex on the CPU needs head sizes of at least 24, not {q.shape[-1]}"
    if q.dtype == torch.float64:
        return "flex does not support float64"
    if q.device.type == "cuda" and not 16 <= q.shape[-1] <= 256:
        return f"flex on a GPU needs head sizes from 16 to 256, not {q.shape[-1]}"
    if q.device.type == "cuda":
        return compile_failure(q, k, v, mask, trained)
    return None


#: Failed compilations by kind of call. None: it was compiled.
_compile_failures: dict[tuple, str | None] = {}


def compile_failure(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, trained: bool) -> str | None:
    """Return the reason why PyTorch cannot compile a kernel for a call, or None.

    The first call of a kind is computed here, with gradients if ``trained``, which compiles the
    kernels that the following calls use. A failure during a training could not be handled there:
    the backward pass is compiled only when it runs.

    Where activations are recomputed, the tensors that this call saves are no activations, because
    the recomputation does not repeat it. The hooks set here replace those that count them.
    """
    kind = (
        *(q.device, q.dtype, q.shape[1], q.shape[3], q.shape[0] == 1, trained),
        *(type(mask.bias), mask.window > 0, mask.document_start is not None),
        *(mask.offset > 0, mask.num_queries == 1, mask.num_queries <= BLOCK),
        *(mask.num_queries % BLOCK == 0, mask.num_keys % BLOCK == 0),
        (*q.shape, mask.num_keys) if has_own_kernel(q, k) else None,
    )
    if kind not in _compile_failures:
        q, k, v = (x.detach().clone().requires_grad_(trained) for x in (q, k, v))
        try:
            with saved_tensors_hooks(lambda saved: saved, lambda saved: saved):
                output = attend(q, k, v, mask, 0.0)
                if trained:
                    torch.autograd.grad(output, (q, k, v), output.detach())
            _compile_failures[kind] = None
        except compiler_errors() as error:
            reason = str(error).strip().splitlines()[0]
            _compile_failures[kind] = f"flex could not be compiled for this call: {reason}"
            logger.warning("%s. Another backend is used.", _compile_failures[kind])
    return _compile_failures[kind]


def _reads_past_keys(head_dim: int) -> bool:
    """Return True if PyTorch's C++ kernel may read memory past the end of the keys.

    For head sizes below 24, the kernel that multiplies queries by keys computes complete tiles of
    16 keys. If the number of keys is no multiple of 16, the last tile can exceed them. It then
    reads other memory, and with up to 128 keys also overwrites the largest scores of the first
    queries, so that their outputs are wrong or NaN. With AVX2 this happens at head sizes 8 and 16
    if the number of keys modulo 16 is 8.

    Observed in PyTorch 2.13: ``CppMicroGemmFP32Vec`` since
    https://github.com/pytorch/pytorch/pull/147068. No upstream issue is known.
    """
    return head_dim < 24


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: FutureMask,
    dropout_p: float,
    windows: Tensor | None = None,
) -> Tensor:
    """Return the output (B, H, T, D).

    Args:
        q, k, v, mask, dropout_p: arguments of :func:`alibi_fairseq.attention.attend`.
        windows: (B, H) floats, or None. Keys at a greater distance may be skipped.
    """
    score_mod = _score_modification(mask, q.device)
    if windows is None:
        blocks = _visible_blocks(mask, q.device)
    else:
        blocks = causal_blocks(mask, q.device, windows)
    options = None
    if q.device.type == "cuda":
        has_table = mask.bias is not None and not is_linear(mask.bias)
        options = kernel_options(mask, q.dtype, has_table)
    return flex_kernel(q, k, v, score_mod, blocks, options)


def scalar_tensor(value: int, device: torch.device) -> Tensor:
    """Return a tensor of one number without waiting for a GPU, as ``torch.tensor`` would."""
    return torch.full((), value, device=device)


@once_per_mask
def _score_modification(mask: FutureMask, device: torch.device) -> Callable | None:
    """Return the function that adds the bias to one score, or None without a bias.

    The sizes of captured tensors are marked as constants. In the C++ that PyTorch 2.13 writes for a
    CPU it replaces the names of sizes as text, so that "ks1" within "ks15" becomes
    "cur_kvSplitSize5", which does not compile (``CppFlexAttentionTemplate.modification``; no
    upstream issue is known).
    """
    import torch._dynamo

    if mask.bias is None:
        return None
    distance = _distance_function(mask, device)
    if is_linear(mask.bias):
        slopes = mask.bias.slopes(device)  # (H,)
        torch._dynamo.mark_static(slopes)

        def linear(score, batch, head, query, key):
            return score - slopes[head] * distance(query, key)

        return linear
    assert isinstance(mask.bias, RelativeBias)  # see unsupported_reason()
    table = mask.bias.at(torch.arange(mask.num_keys, device=device))  # (H, S)
    torch._dynamo.mark_static(table, 0)

    def relative(score, batch, head, query, key):
        return score + table[head, distance(query, key).clamp(min=0)]

    return relative


def _distance_function(mask: FutureMask, device: torch.device) -> Callable:
    """Return the function from the indices of a query and a key to their distance.

    Reading a number from a tensor for each score makes the kernel a third slower (D = 64 on an
    H200), so a mask without an offset has none.
    """
    if mask.offset == 0:
        return lambda query, key: query - key
    # A tensor, since another number in the closure would be compiled again.
    offset = scalar_tensor(mask.offset, device)
    return lambda query, key: query + offset - key


@once_per_mask
def _visible_blocks(mask: FutureMask, device: torch.device) -> BlockMask:
    """Return the blocks of keys that each block of queries attends to, without skipping."""
    return causal_blocks(mask, device)


def causal_blocks(
    mask: FutureMask, device: torch.device, windows: Tensor | None = None
) -> BlockMask:
    """Compute which blocks of keys each block of queries attends to, from counts alone.

    Args:
        mask: gives T, S, the attention window and the documents, which are exact.
        windows: (B, H) floats, or None. A block of keys that are all further than this from all
            queries of a block is skipped. Keys at a greater distance in other blocks are not
            masked.
    """
    from torch.nn.attention.flex_attention import BlockMask

    num_keys = mask.num_keys
    offset = mask.offset
    rows = -(-mask.num_queries // BLOCK)  # rounded up
    columns = torch.arange(-(-num_keys // BLOCK), device=device)  # (C,)
    first = offset + torch.arange(rows, device=device) * BLOCK  # (R,) position of the first query

    # The first block of keys that a block of queries attends to.
    if mask.window:
        start = (first - mask.window + 1).clamp(min=0).expand(1, 1, rows) // BLOCK  # (1, 1, R)
    elif windows is None:
        start = torch.zeros_like(first).expand(1, 1, rows)  # (1, 1, R)
    else:
        nearest = (first - windows.to(first.dtype)[..., None]).clamp(min=0)
        start = nearest // BLOCK  # (B, H, R)
    query_document_start = None
    if mask.document_start is not None:
        query_document_start = mask.document_start[:, offset:].contiguous()  # (B, T)
        start = torch.maximum(start, query_document_start[:, None, ::BLOCK] // BLOCK)  # (B, 1, R)

    end = (first + BLOCK).clamp(max=num_keys).sub(1) // BLOCK + 1  # (R,) one past the last block
    # Blocks from start up to here have no masked key. With a window or documents any block may.
    partial = start
    if not mask.window and query_document_start is None:
        # The block of a query block's first key is partial even if that key is its last one, so
        # that each query has a visible key in the first block that the kernel visits.
        partial = torch.maximum(first // BLOCK, start)
    end, partial = torch.broadcast_tensors(end, partial)

    def block_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        """Return the number of blocks from ``low`` to ``high`` - 1, and their indices first."""
        count = (high - low).clamp(min=0).int()  # (B, H, R)
        index = (low[..., None] + columns).clamp(max=len(columns) - 1).int()  # (B, H, R, C)
        return count, index

    partial_count, partial_index = block_range(partial, end)
    full_count, full_index = block_range(start, partial)
    return BlockMask.from_kv_blocks(
        partial_count,
        partial_index,
        full_count,
        full_index,
        BLOCK_SIZE=BLOCK,
        mask_mod=_visibility(mask, query_document_start, device),
        seq_lengths=(mask.num_queries, num_keys),
    )


def _visibility(
    mask: FutureMask, query_document_start: Tensor | None, device: torch.device
) -> Callable:
    """Return the function that is True if a query attends to a key.

    ``query_document_start`` is (B, T), the first key of each query's document.
    """
    distance = _distance_function(mask, device)

    def causal(batch, head, query, key):
        return distance(query, key) >= 0

    visible = causal
    if mask.window:
        limit = scalar_tensor(mask.window, device)

        def within_window(batch, head, query, key):
            return causal(batch, head, query, key) & (distance(query, key) < limit)

        visible = within_window
    if query_document_start is None:
        return visible

    def visible_in_document(batch, head, query, key):
        in_document = key >= query_document_start[batch, query]
        return visible(batch, head, query, key) & in_document

    return visible_in_document
