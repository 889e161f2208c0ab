"""The step around attention beside fairseq's: ``python -m benchmarks.output_layer``.

The same model with the same weights, in turns in one process: with fairseq's loss, with our chunked
one, and with the chunked one and ``--optimizer fused_adam``. Peak memory is that of
one model in a process of its own (on a GPU: of its own allocations).

On the CPU: 3 layers of width 192 with an adaptive softmax over 120,180 words, 8,192 tokens per step,
and the small model of ``benchmarks.train`` with a softmax over 8,192 words, fp32. On a GPU: the
paper's WikiText-103 model and a softmax over 50,257 words, 9,216 tokens per step, bf16.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from . import common, models

_NARROW = (
    "--decoder-layers 3 --decoder-embed-dim 192 --decoder-ffn-embed-dim 768 "
    "--decoder-attention-heads 8 --adaptive-softmax-cutoff 2000,10000 "
    "--adaptive-input --adaptive-input-cutoff 2000,10000 --tie-adaptive-weights"
)
#: A small model with the large vocabulary of natural text.
LARGE_VOCABULARY = models.Shape(
    "3 layers, d=192, 120,180 words",
    120_180,
    tuple(_NARROW.split()),
    (),
    "adaptive_loss",
    8192,
)
LENGTH = 512
fused_adam = partial(torch.optim.AdamW, fused=True)


def main() -> None:
    no_memory = {"action": "store_true", "help": "do not measure peak memory"}
    common.run(__doc__, "output_layer", measure, no_memory=no_memory)


def variants(shape: models.Shape) -> dict[str, tuple]:
    """Arguments of :func:`models.stepper`: fairseq's criterion, ours, and ours with an option."""
    ours = f"chunked_{shape.criterion}"
    chunked = replace(shape, criterion=ours)
    return {
        shape.criterion: ("alibi", shape, LENGTH),
        ours: ("alibi", chunked, LENGTH),
        f"{ours}, --optimizer fused_adam": ("alibi", chunked, LENGTH, 0.0, 1, fused_adam),
    }


def measure(args) -> Iterator[dict]:
    """One cell per model and variant."""
    on_gpu = common.device().type == "cuda"
    on_cpu = (LARGE_VOCABULARY, models.SMALL)
    for shape in (models.WIKI103, models.DENSE_16) if on_gpu else on_cpu:
        yield from models.compare_steps(
            variants(shape), args.rounds, "training step", shape.criterion, not args.no_memory
        )


if __name__ == "__main__":
    main()
