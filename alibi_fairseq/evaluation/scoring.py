"""Log-probabilities of the scored tokens only.

Only features of scored positions reach the output layer, in chunks of rows, so that no
(tokens × vocabulary) matrix larger than one chunk exists. With an adaptive softmax a token needs the
head and, unless it is a frequent word, its own tail cluster; the values equal those of fairseq's
``AdaptiveSoftmax.get_log_prob`` at the target.

Shapes: B batch, T inputs of a window, S scored tokens of a window, n rows, C model width,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

#: Scores per chunk, by device type. On a CPU 16 MB in fp32: larger buffers are returned to the system
#: each time, and clearing their pages anew takes as long as the computation.
CHUNK = {"cpu": 2**22, "cuda": 2**27}


def token_losses(decoder: Any, features: Tensor, targets: Tensor) -> Tensor:
    """−ln p of each target.

    Args:
        decoder: a fairseq decoder; its ``adaptive_softmax`` is used if there is one, otherwise its
            ``output_layer``.
        features: (B, S, C) of the scored positions.
        targets: (B, S) target tokens.

    Returns:
        (B, S) in fp32 nats, or wider if the features are.
    """
    rows, flat = features.flatten(0, 1), targets.flatten()  # (n, C), (n,)
    if decoder.adaptive_softmax is not None:
        losses = adaptive_losses(decoder.adaptive_softmax, rows, flat)
    else:
        width = decoder.output_projection.weight.shape[0]
        losses = _losses_in_chunks(decoder.output_layer, width, rows, flat)
    return losses.view(targets.shape)


def adaptive_losses(softmax: Any, rows: Tensor, targets: Tensor) -> Tensor:
    """−ln p of each target under fairseq's adaptive softmax.

    Args:
        softmax: a ``fairseq.modules.AdaptiveSoftmax``; its first cutoff ends the head, and the head
            ends with one score per tail cluster.
        rows: (n, C) features.
        targets: (n,) tokens.

    Returns:
        (n,) in at least fp32.
    """
    ends = softmax.cutoff
    cluster = torch.stack([targets >= end for end in ends]).sum(dim=0)  # (n,) 0 in the head
    in_head = torch.where(cluster == 0, targets, ends[0] + cluster - 1)
    losses = _losses_in_chunks(softmax.head, ends[0] + len(softmax.tail), rows, in_head)
    # All sizes at once: one answer that the host waits for, instead of one for each tail.
    sizes = torch.stack([(cluster == index).sum() for index in range(len(ends))]).tolist()
    members_of = cluster.argsort(stable=True).split(sizes)
    for index, tail in enumerate(softmax.tail):
        members = members_of[index + 1]
        begin, end = ends[index], ends[index + 1]
        of_tail = _losses_in_chunks(tail, end - begin, rows[members], targets[members] - begin)
        losses[members] += of_tail
    return losses


def _losses_in_chunks(
    project: Callable[[Tensor], Tensor], width: int, rows: Tensor, targets: Tensor
) -> Tensor:
    """(n,) cross-entropies, where ``project`` gives the (m, width) scores of m rows."""
    losses = rows.new_empty(len(rows), dtype=torch.promote_types(rows.dtype, torch.float32))
    step = max(1, CHUNK[rows.device.type] // width)
    for begin in range(0, len(rows), step):
        chunk = slice(begin, begin + step)
        scores = project(rows[chunk]).to(losses.dtype)  # (m, width)
        losses[chunk] = cross_entropy(scores, targets[chunk], reduction="none")
    return losses
