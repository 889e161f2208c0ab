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

import time

from . import common, models

VARIANTS = ("stock", "materialised", "no bias", "sinusoidal", "alibi")


def main() -> None:
    parser = common.parser(__doc__, "train")
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--variants", nargs="+", default=VARIANTS)
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument(
        "--peak-memory-of",
        nargs=4,
        metavar=("VARIANT", "LENGTH", "ATTENTION_DROPOUT", "PASSES"),
        help="print the peak memory of two training steps in MB and stop",
    )
    args = parser.parse_args()
    common.prepare(args)
    if args.peak_memory_of:
        variant, length, dropout, passes = args.peak_memory_of
        print(peak_memory(variant, int(length), float(dropout), int(passes)))
        return
    began = time.time()
    on_gpu = common.device().type == "cuda"
    lengths = args.lengths or (
        [512, 1024, 3072] if on_gpu or args.quick else [512, 1024, 3072, 8192]
    )
    cells = []
    peak = common.matmul_peak(common.device(), common.precision(common.device()))
    for dropout in (0.0, 0.1) if on_gpu else (0.0,):
        for length in lengths:
            cells += measure(args, length, dropout, peak)
    common.save(args, "train", cells, began)


def shape() -> models.Shape:
    return models.WIKI103 if common.device().type == "cuda" else models.SMALL


def stepper(variant: str, length: int, dropout: float, passes: int = 1):
    """The model and a function that takes one training step."""
    where = common.device()
    model, dictionary = models.build(variant, shape(), length, dropout)
    model.to(where, common.precision(where))
    return model, models.training_step(model, dictionary, shape(), length, passes)


def peak_memory(variant: str, length: int, dropout: float, passes: int) -> float:
    """MB at most in use during two training steps, with the model and its optimiser."""
    _, step = stepper(variant, length, dropout, passes)
    step()
    step()
    return common.peak_memory_mb(common.device())


def measure(args, length: int, dropout: float, peak: float) -> list[dict]:
    """One cell per variant at one length."""
    steppers = {name: stepper(name, length, dropout) for name in args.variants}
    steps = {name: step for name, (_, step) in steppers.items()}
    times = common.seconds_in_turns(steps, args.rounds, f"training, {length} tokens")
    flops = models.flops_per_step(steppers[args.variants[0]][0], shape(), length)
    batch = shape().batch(length)
    del steppers, steps
    cells = common.cells_of(
        times,
        "training step",
        "stock",
        batch * length,
        model=shape().name,
        weights="random",
        length=length,
        batch=batch,
        attention_dropout=dropout,
        matmul_peak_gflops=round(peak / 1e9, 1),
    )
    for cell in cells:
        name = cell["variant"]
        cell["ratio_to_materialised"] = round(common.ratio(times, name, "materialised"), 3)
        cell["share_of_peak"] = round(flops / cell["seconds"] / peak, 3)
        if not args.no_memory:
            own = (name, length, dropout, 1)
            memory = common.peak_memory_of(peak_memory, "benchmarks.train", *own)
            cell["peak_memory_mb"] = round(memory, 1)
    return cells


if __name__ == "__main__":
    main()
