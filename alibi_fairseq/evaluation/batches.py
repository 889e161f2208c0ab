"""Windows grouped into batches, and batches into shards.

Matrix products round differently for different batch shapes, so a window's loss may depend on the
batch it is in. Batches are therefore cut from the whole list of windows, by size alone, before
anything is shared out: a shard computes the very batches that one process would.
"""

from __future__ import annotations

from itertools import groupby

import torch

from .windows import Window

#: Inputs in a batch beyond which nothing gets faster.
ENOUGH_INPUTS = {"cpu": 4096, "cuda": 131072}


def windows_per_batch(length: int, bytes_per_input: int, memory: int, device: torch.device) -> int:
    """How many windows to compute at once, at least 1.

    Args:
        length: inputs of a window.
        bytes_per_input: memory that a forward pass takes for each of them.
        memory: budget in bytes.
        device: where the model is.
    """
    enough = ENOUGH_INPUTS.get(device.type, ENOUGH_INPUTS["cuda"])
    return max(1, min(enough, memory // bytes_per_input) // length)


def make_batches(windows: list[Window], size: int) -> list[list[Window]]:
    """Runs of at most ``size`` windows that have one length and score equally many tokens."""
    batches = []
    for _, alike in groupby(windows, key=lambda window: (window.length, window.scores)):
        alike = list(alike)
        batches += [alike[begin : begin + size] for begin in range(0, len(alike), size)]
    return batches


def shard_of(batches: list, index: int, count: int) -> list:
    """The contiguous span of batches that shard ``index`` (from 1) of ``count`` computes."""
    begin, end = ((i * len(batches)) // count for i in (index - 1, index))
    return batches[begin:end]
