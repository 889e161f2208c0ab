"""Whole training steps compared with stock fairseq: ``python -m benchmarks.train [--quick]``.

Measures forward, loss, backward, clipping, and Adam, in alternation in one process. The variants
are fairseq's sinusoidal ``transformer_lm``, the authors' ALiBi in it, and models of this project.
Peak memory is measured with one model per process (on a GPU, from its allocations before it is
timed). Weights are
random. The scores that can be skipped depend on them: ``benchmarks.attention --path`` measures
trained ones.

On the CPU: 4 layers, d=512, 8 heads, FFN 2048, 8,192 words, 3,072 tokens per step, fp32. On a GPU:
the paper's WikiText-103 model, 9,216 tokens per step, bf16, with and without attention dropout.
Without ``--quick``, also with the modern block, and on a GPU with ``--compile-layers``.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import common, models

VARIANTS = ("stock", "materialised", "no bias", "sinusoidal", "alibi")
#: Further variants without ``--quick``.
MODERN_VARIANTS = ("no bias" + models.MODERN, "alibi" + models.MODERN)
#: Further variants on a GPU without ``--quick``, which take longer to compile.
COMPILED_VARIANTS = ("no bias" + models.COMPILED, "alibi" + models.COMPILED)


def main() -> None:
    common.run(
        __doc__,
        "train",
        measure,
        lengths={"type": int, "nargs": "+", "help": "training lengths in tokens"},
        no_memory={"action": "store_true", "help": "do not measure peak memory"},
    )


def measure(args) -> Iterator[dict]:
    """Yield one result record per attention dropout, length, and variant."""
    device = common.device()
    shape = models.default_shape()
    lengths = [512, 1024, 3072]
    if not common.on_gpu() and not args.quick:
        lengths += [8192]
    names = VARIANTS
    if not args.quick:
        names += MODERN_VARIANTS
    if common.on_gpu() and not args.quick:
        names += COMPILED_VARIANTS
    dropouts = [0.0, 0.1] if common.on_gpu() else [0.0]
    peak = common.matmul_peak(device, common.precision(device))
    for dropout in dropouts:
        for length in args.lengths or lengths:
            variants = {name: models.StepConfig(name, shape, length, dropout) for name in names}
            yield from models.compare_steps(
                models.build_training_steps(variants, not args.no_memory),
                args.rounds,
                "training step",
                "stock",
                attention_dropout=dropout,
                matmul_peak_gflops=round(peak / 1e9, 1),
            )


if __name__ == "__main__":
    main()
