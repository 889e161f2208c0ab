"""How far back a model looks: its effective context, and attention by distance.

Two answers, because attention to distant tokens need not lower the loss. Losses say how long windows have to
be; the softmax weights, with bias and mask, say where attention goes.

Shapes: H heads, B windows, T inputs of a window, S of them scored, K keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from .checkpoint import LoadedModel
from .measure import Stream, losses_of
from .windows import Window

#: Windows that attention is measured in; all weights of a window are in memory at once.
WINDOWS = 32


def attention_mass(model: LoadedModel, stream: Stream, windows: list[Window]) -> list[float]:
    """Attention by distance: the mean over layers, heads and scored tokens.

    Args:
        windows: at most ``WINDOWS`` of the longest, evenly spread, are computed; with a memory the
            first ones, one after the other.

    Returns:
        The share of a token's own input, then of distances 1, 2–3, 4–7, … up to the longest.
    """
    longest = max(window.length for window in windows)
    chosen = [window for window in windows if window.length == longest]
    if model.memory_length:
        chosen = windows[:WINDOWS]
    chosen = chosen[:: -(-len(chosen) // WINDOWS)]
    sums: list[Tensor] = []
    scored = 0

    def ask(module, arguments, options):
        return arguments, {**options, "need_weights": True, "need_head_weights": True}

    def add(module, arguments, output):
        sums.append(by_distance(output[1][:, :, -scored:]))  # (H, B, S, K)

    layers: Any = [layer.self_attn for layer in torch.nn.ModuleList.__iter__(model.decoder.layers)]
    hooks = [layer.register_forward_pre_hook(ask, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(add) for layer in layers]
    try:
        score = model.scorer()
        for window in chosen:
            scored = window.scores
            list(losses_of(score, stream, [[window]]))
    finally:
        for hook in hooks:
            hook.remove()
    most = max(map(len, sums))
    padded = [torch.nn.functional.pad(part, (0, most - len(part))) for part in sums]
    total = torch.stack(padded).sum(dim=0)
    return (total / total.sum()).tolist()


def by_distance(weights: Tensor) -> Tensor:
    """Sums of softmax weights by distance 0, 1, 2–3, 4–7, …

    Args:
        weights: (…, S, K), the last S of K positions attending to all.

    Returns:
        (buckets,) float64.
    """
    rows, keys = weights.shape[-2:]
    places = torch.arange(keys, device=weights.device)
    distance = (places[-rows:, None] - places).clamp(min=0)  # the future has no weight
    bucket = torch.frexp(distance.double()).exponent  # 0, then ⌊log₂ distance⌋ + 1
    mass = weights.double().sum(dim=tuple(range(weights.dim() - 2)))  # (S, K)
    return torch.bincount(bucket.flatten().long(), mass.flatten())


def distances(count: int) -> list[str]:
    """Names of the buckets: 0, 1, 2–3, 4–7, …"""
    return ["0", "1", *(f"{2**n}–{2 ** (n + 1) - 1}" for n in range(1, count - 1))][:count]


def effective_context(cells: Iterable[dict], percent: float) -> int:
    """The shortest window whose loss is within a band of the longest one's.

    Args:
        cells: evaluations of one model, split and stride at several lengths, of the same tokens.
    """
    loss = {cell["length"]: cell["loss_bits"] for cell in cells}
    most = loss[max(loss)] * (1 + percent / 100)
    return min(length for length in loss if loss[length] <= most)
