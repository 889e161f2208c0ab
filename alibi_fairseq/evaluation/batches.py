"""Windows grouped into batches, and batches into shards.

Matrix products round differently for different batch shapes, so the loss of a window may depend on
its batch. Batches are therefore formed from the whole list of windows before sharding: a shard
computes exactly the batches that a single process would.
"""

from __future__ import annotations

from itertools import groupby

import torch

from .windows import Window

#: Inputs per batch beyond which throughput no longer improves.
ENOUGH_INPUTS = {"cpu": 4096, "cuda": 131072}


def windows_per_batch(length: int, bytes_per_input: int, memory: int, device: torch.device) -> int:
    """How many windows to compute at once, at least 1.

    Args:
        length: inputs of a window.
        bytes_per_input: memory that a forward pass takes per input.
        memory: budget in bytes.
        device: where the model is.
    """
    enough = ENOUGH_INPUTS.get(device.type, ENOUGH_INPUTS["cuda"])
    return max(1, min(enough, memory // bytes_per_input) // length)


def make_batches(windows: list[Window], size: int) -> list[list[Window]]:
    """Runs of at most ``size`` windows with equal lengths and equal numbers of scored tokens."""
    batches = []
    for _, group in groupby(windows, key=lambda window: (window.length, window.scores)):
        alike = list(group)
        batches += [alike[begin : begin + size] for begin in range(0, len(alike), size)]
    return batches


def shard_of(batches: list, index: int, count: int) -> list:
    """The contiguous span of batches that shard ``index`` (from 1) of ``count`` computes."""
    begin, end = ((i * len(batches)) // count for i in (index - 1, index))
    return batches[begin:end]
