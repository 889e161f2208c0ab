"""Whole training steps beside stock fairseq: ``python -m benchmarks.train [--quick]``.

Forward, loss, backward, clipping and Adam, of fairseq's own sinusoidal ``transformer_lm``, of ALiBi
on it as the authors do it, and of this project's models, in turns in one process. Peak memory is
that of one model in a process of its own (on a GPU: of its own allocations). Weights are as
initialised: what may be skipped depends on them, and ``benchmarks.attention --path`` has trained
ones.

On the CPU: 4 layers, d=512, 8 heads, FFN 2048, 8 thousand words, 3,072 tokens per step, fp32. On a
GPU: the paper's WikiText-103 model, 9,216 tokens per step, bf16, with and without attention dropout.
"""

from __future__ import annotations

from collections.abc import Iterator

from . import common, models

VARIANTS = ("stock", "materialised", "no bias", "sinusoidal", "alibi")


def main() -> None:
    common.run(
        __doc__,
        "train",
        measure,
        lengths={"type": int, "nargs": "+"},
        no_memory={"action": "store_true", "help": "do not measure peak memory"},
    )


def measure(args) -> Iterator[dict]:
    """One cell per attention dropout, length and variant."""
    on_gpu, shape = common.device().type == "cuda", models.shape()
    lengths = [512, 1024, 3072] if on_gpu or args.quick else [512, 1024, 3072, 8192]
    peak = common.matmul_peak(common.device(), common.precision(common.device()))
    for dropout in (0.0, 0.1) if on_gpu else (0.0,):
        case = {"attention_dropout": dropout, "matmul_peak_gflops": round(peak / 1e9, 1)}
        for length in args.lengths or lengths:
            variants = {name: (name, shape, length, dropout) for name in VARIANTS}
            yield from models.compare_steps(
                variants, args.rounds, "training step", "stock", not args.no_memory, **case
            )


if __name__ == "__main__":
    main()
