"""Cross-entropy of a linear layer, computed in chunks of rows.

The matrix of scores is never held as a whole: a chunk of it is computed in a buffer that is used
again for the next one, and the gradient is computed in the same pass. On a CPU the buffer fits the
cache, where the usual formulation moves four such matrices through memory; on a GPU the memory of
the loss no longer grows with the number of tokens. Each CPU thread has chunks of its own: operations
of a few rows are too short to be divided among threads, which would wait for each other after each.

Prior work: Liger's fused linear cross-entropy (https://arxiv.org/abs/2410.10989) and cut
cross-entropy (https://arxiv.org/abs/2411.09009).

Shapes: n rows, m rows of a chunk, C width of the input, V classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..attention.thread_pool import run_parallel

#: Scores in one chunk, by kind of device: 8 MB in fp32 on a CPU, which its last cache holds; 128 MB
#: on a GPU, where matrix products of fewer rows would not fill the device.
CHUNK = {"cpu": 2**21, "cuda": 2**25}


def linear_cross_entropy(
    targets: Tensor,
    *parts: tuple[Tensor, Tensor],
    ignore_index: int | None = None,
    reduce: bool = True,
    excluded: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of ``cat([x @ weight.T for x, weight in parts], dim=1)``.

    Args:
        targets: (n,) classes.
        parts: the layer's input (n, C) and weight (V, C). The layer may consist of several such
            pairs, which may differ in C; their classes are numbered in order.
        ignore_index: rows with this target have loss 0.
        reduce: sum over rows.
        excluded: (k,) classes without probability; a target among them has an infinite loss.

    Returns:
        A scalar, or (n,) without ``reduce``, in nats; fp32 for half-precision inputs, otherwise in
        the dtype of the inputs.
    """
    x, weight = parts[0]
    dtype = torch.mm(x[:1], weight[:1].t()).dtype  # autocast chooses it where it is enabled
    tensors = [tensor.to(dtype) for part in parts for tensor in part]
    # fp16 gradients are scaled against underflow by what backward() is called with. A sum in fp32
    # or bf16 needs no such care, so that its gradient can be computed along with the loss.
    at_once = reduce and torch.is_grad_enabled() and dtype != torch.float16
    return _LinearCrossEntropy.apply(targets, ignore_index, reduce, at_once, excluded, *tensors)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, targets, ignore_index, reduce, at_once, excluded, *tensors):
        counted = torch.ones_like(targets, dtype=torch.bool)
        if ignore_index is not None:
            counted = targets.ne(ignore_index)
        at_once = at_once and any(ctx.needs_input_grad)
        factors = counted if at_once else None
        losses, ctx.gradients = _in_chunks(targets, counted, tensors, factors, excluded)
        ctx.excluded = excluded
        ctx.save_for_backward(targets, counted, *tensors)
        return losses.sum() if reduce else losses

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        targets, counted, *tensors = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            _, gradients = _in_chunks(targets, counted, tensors, counted * gradient, ctx.excluded)
        else:
            for computed in gradients:
                computed.mul_(gradient)
        return None, None, None, None, None, *gradients


def _in_chunks(
    targets: Tensor,
    counted: Tensor,
    tensors: Sequence[Tensor],
    factors: Tensor | None,
    excluded: Tensor | None,
) -> tuple[Tensor, list[Tensor] | None]:
    """(n,) losses, and the gradients of ``tensors``, inputs (n, C) and weights (V, C) in turns.

    ``counted`` (n,) is False where a row has no loss; ``factors`` (n,) are the gradients of the rows'
    losses, None if no gradients are wanted.
    """
    inputs, weights = tensors[::2], tensors[1::2]
    n, dtype = len(targets), inputs[0].dtype
    precise = torch.promote_types(dtype, torch.float32)
    widths = [len(weight) for weight in weights]
    rows = min(max(1, CHUNK[targets.device.type] // sum(widths)), max(1, n))
    targets = targets.where(counted, 0)[:, None]  # (n, 1)
    losses = inputs[0].new_empty(n, dtype=precise)
    if factors is not None:
        factors = factors.to(precise)[:, None]  # (n, 1)
        minus_one = -torch.ones_like(factors)
        of_inputs = [torch.empty_like(x) for x in inputs]

    def compute(begin: int, end: int, of_weights: list[Tensor]) -> None:
        """Losses and input gradients of rows ``begin`` to ``end``; their part of ``of_weights``."""
        buffer = inputs[0].new_empty(rows, sum(widths))
        for first in range(begin, end, rows):
            chunk = slice(first, min(first + rows, end))
            scores = buffer[: chunk.stop - first]  # (m, V)
            for x, weight, out in zip(inputs, weights, scores.split(widths, dim=1)):
                torch.mm(x[chunk], weight.t(), out=out)
            if excluded is not None:
                scores.index_fill_(1, excluded, -torch.inf)
            # In place, but for half precision, whose softmax is computed in fp32.
            logs = scores.to(precise)
            torch.log_softmax(logs, dim=1, out=logs)
            losses[chunk] = -logs.gather(1, targets[chunk]).squeeze(1)
            if factors is None:
                continue
            # The gradient of the scores: the probabilities, less 1 at the target.
            logs.exp_().scatter_add_(1, targets[chunk], minus_one[chunk])
            torch.mul(logs, factors[chunk], out=scores)
            for index, out in enumerate(scores.split(widths, dim=1)):
                x = inputs[index][chunk]
                torch.mm(out, weights[index], out=of_inputs[index][chunk])
                if dtype == precise:
                    of_weights[index].addmm_(x.t(), out)
                else:
                    of_weights[index].add_(torch.mm(x.t(), out))

    # Each share adds up a gradient of the weights of its own: with no fewer rows in a share than
    # columns in x, these are together no larger than the matrix of scores.
    shares = torch.get_num_threads() if targets.device.type == "cpu" else 1
    shares = max(1, min(shares, n // max(x.shape[1] for x in inputs)))
    borders = [n * share // shares for share in range(shares + 1)]
    # Transposed, so that a chunk is added in the order in which it lies in memory.
    sums = [
        [] if factors is None else [w.new_zeros(w.shape[::-1], dtype=precise) for w in weights]
        for _ in range(shares)
    ]
    tasks = [partial(compute, *work) for work in zip(borders, borders[1:], sums)]
    if shares == 1:
        tasks[0]()
    else:
        run_parallel(tasks)
    losses.masked_fill_(~counted, 0)  # not a product: an excluded class has an infinite loss
    if factors is None:
        return losses, None
    of_weights = sums[0]
    for more in sums[1:]:
        for total, w in zip(of_weights, more):
            total.add_(w)
    gradients = [g for x, w in zip(of_inputs, of_weights) for g in (x, w.t().to(dtype))]
    return losses, gradients
