"""Training steps by criterion and optimizer: ``python -m benchmarks.output_layer``.

Compares three variants of one model with the same weights, in alternation in one process: fairseq's
criterion, our chunked criterion, and our chunked criterion with ``--optimizer fused_adam``. Peak
memory is measured with one model per process (on a GPU, from its allocations).

On the CPU, in fp32:

- 3 layers of width 192 with an adaptive softmax over 120,180 words, 8,192 tokens per step
- the small model of ``benchmarks.train`` with a softmax over 8,192 words

On a GPU, in bf16, 9,216 tokens per step:

- the paper's WikiText-103 model
- 16 layers of width 1024 with a softmax over 50,257 words
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


def default_shapes() -> tuple[models.Shape, ...]:
    """Return the models to measure on this machine."""
    if common.on_gpu():
        return (models.WIKI103, models.DENSE_16)
    return (LARGE_VOCABULARY, models.SMALL)


def make_variants(shape: models.Shape) -> dict[str, models.StepConfig]:
    """Return the model and step of each variant."""
    chunked = f"chunked_{shape.criterion}"
    stock_step = models.StepConfig("alibi", shape, LENGTH)
    chunked_step = replace(stock_step, shape=replace(shape, criterion=chunked))
    return {
        shape.criterion: stock_step,
        chunked: chunked_step,
        f"{chunked}, --optimizer fused_adam": replace(chunked_step, make_optimizer=fused_adam),
    }


def measure(args) -> Iterator[dict]:
    """Yield one result record per model and variant."""
    for shape in default_shapes():
        steps = models.build_training_steps(make_variants(shape), not args.no_memory)
        yield from models.compare_steps(steps, args.rounds, "training step", shape.criterion)


if __name__ == "__main__":
    main()
