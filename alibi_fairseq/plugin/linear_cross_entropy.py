"""Cross-entropy of a linear layer, computed in chunks of rows.

The whole matrix of scores is never in memory. Each chunk of it is computed in the same buffer, and
its gradient in the same pass. On a CPU the buffer fits the cache, where the usual formulation moves
four such matrices through memory. On a GPU the memory of the loss does not grow with the number of
tokens. Each CPU thread computes separate chunks: operations on a few rows are too short to be
divided among threads, which would wait for each other after each operation.

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
    """Compute the cross-entropy of ``cat([x @ weight.T for x, weight in parts], dim=1)``.

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
    tensors = []
    for x, weight in parts:
        tensors += [x.to(dtype), weight.to(dtype)]
    # The argument of backward() scales fp16 gradients against underflow. In fp32 and bf16, the
    # gradient of a sum needs no scale and is computed along with the loss.
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
        gradients = ctx.gradients
        ctx.gradients = None
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
    """Compute losses and gradients chunk by chunk.

    Args:
        targets: (n,) classes.
        counted: (n,) bool, False for rows without a loss.
        tensors: input (n, C) and weight (V, C) of each part in turn.
        factors: (n,) gradients with respect to the losses of the rows. None: compute no gradients.
        excluded: (k,) classes without probability, or None.

    Returns:
        The losses, (n,), and the gradients of ``tensors`` or None.
    """
    inputs = tensors[::2]
    weights = tensors[1::2]
    n = len(targets)
    dtype = inputs[0].dtype
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
        """Compute rows ``begin`` to ``end``, and add their weight gradients to ``of_weights``."""
        buffer = inputs[0].new_empty(rows, sum(widths))
        for first in range(begin, end, rows):
            chunk = slice(first, min(first + rows, end))
            scores = buffer[: chunk.stop - first]  # (m, V)
            for x, weight, out in zip(inputs, weights, scores.split(widths, dim=1)):
                torch.mm(x[chunk], weight.t(), out=out)
            if excluded is not None:
                scores.index_fill_(1, excluded, -torch.inf)
            # In place, except in half precision, whose softmax is computed in fp32.
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

    # Each worker adds up a separate gradient of the weights. A worker has at least as many rows as
    # x has columns, so these gradients are together no larger than the matrix of scores.
    workers = torch.get_num_threads() if targets.device.type == "cpu" else 1
    workers = max(1, min(workers, n // max(x.shape[1] for x in inputs)))
    tasks = []
    sums = []
    for worker in range(workers):
        of_weights: list[Tensor] = []
        if factors is not None:
            # Transposed, so that a chunk is added in the order of the memory.
            of_weights = [w.new_zeros(w.shape[::-1], dtype=precise) for w in weights]
        begin = n * worker // workers
        end = n * (worker + 1) // workers
        tasks.append(partial(compute, begin, end, of_weights))
        sums.append(of_weights)
    if workers == 1:
        tasks[0]()
    else:
        run_parallel(tasks)
    losses.masked_fill_(~counted, 0)  # not a product: an excluded class has an infinite loss
    if factors is None:
        return losses, None
    totals = sums[0]
    for of_weights in sums[1:]:
        for total, of_weight in zip(totals, of_weights):
            total.add_(of_weight)
    gradients = []
    for of_input, total in zip(of_inputs, totals):
        gradients += [of_input, total.t().to(dtype)]
    return losses, gradients
