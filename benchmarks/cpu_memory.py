"""Training steps on the CPU, with and without reuse of memory: ``python -m benchmarks.cpu_memory``.

The workaround :mod:`alibi_fairseq.fairseq_patches.cpu_memory` cannot be undone in a process. Each
variant therefore has its own process, and the processes take steps in alternation. The model is
ALiBi with 4 layers, d=512, 8 heads, FFN 2048, and 8,192 words. A step has 3,072 tokens in fp32.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.fairseq_patches.cpu_memory import keep_freed_memory

from . import common, models

#: The training step of a process, which :func:`_prepare` builds.
_step: Callable[[], float]


def main() -> None:
    common.run(__doc__, "cpu_memory", measure)


def measure(args: argparse.Namespace) -> Iterator[dict]:
    """Yield one result record per length and variant."""
    if common.device().type != "cpu":
        raise UserInputError("This benchmark runs on the CPU; hide the GPU.")
    lengths = [512] if args.quick else [128, 512, 3072]
    shape = models.SMALL
    for length in lengths:
        with _process(length, False) as default, _process(length, True) as reuse:
            steps = {
                "default": lambda: default.submit(_run_step).result(),
                "reuse": lambda: reuse.submit(_run_step).result(),
            }
            yield from common.compare(
                steps,
                args.rounds,
                "training step on the CPU",
                "default",
                shape.batch(length) * length,
                model=shape.name,
                weights="random",
                length=length,
            )


def _process(length: int, reuse: bool) -> ProcessPoolExecutor:
    """Return a pool of one process that has built a training step."""
    return ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), initializer=_prepare, initargs=(length, reuse)
    )


def _prepare(length: int, reuse: bool) -> None:
    global _step
    if reuse:
        keep_freed_memory()
    _step = models.build_training_step(models.StepConfig("alibi", models.SMALL, length)).run


def _run_step() -> float:
    return _step()


if __name__ == "__main__":
    main()
