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
    parser = common.parser(__doc__, "train")
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    common.run(parser, "train", measure)


def measure(args) -> Iterator[dict]:
    on_gpu = common.device().type == "cuda"
    lengths = [512, 1024, 3072] if on_gpu or args.quick else [512, 1024, 3072, 8192]
    peak = common.matmul_peak(common.device(), common.precision(common.device()))
    for dropout in (0.0, 0.1) if on_gpu else (0.0,):
        for length in args.lengths or lengths:
            yield from measure_at(args, length, dropout, peak)


def measure_at(args, length: int, dropout: float, peak: float) -> list[dict]:
    """One cell per variant at one length."""
    shape = models.shape()
    steppers = {name: models.stepper(name, shape, length, dropout) for name in args.variants}
    steps = {name: step for name, (_, step) in steppers.items()}
    times = common.seconds_in_turns(steps, args.rounds, f"training, {length} tokens")
    flops = models.flops_per_step(steppers[args.variants[0]][0], shape, length)
    batch = shape.batch(length)
    del steppers, steps
    case = {"model": shape.name, "weights": "random", "length": length, "batch": batch}
    case |= {"attention_dropout": dropout, "matmul_peak_gflops": round(peak / 1e9, 1)}
    cells = common.cells_of(times, "training step", "stock", batch * length, **case)
    for cell in cells:
        name = cell["variant"]
        cell["ratio_to_materialised"] = round(common.ratio(times, name, "materialised"), 3)
        cell["share_of_peak"] = round(flops / cell["seconds"] / peak, 3)
        if not args.no_memory:
            memory = models.peak_memory(name, shape, length, dropout)
            cell["peak_memory_mb"] = round(memory, 1)
    return cells


if __name__ == "__main__":
    main()
