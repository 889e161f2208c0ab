"""Fastest attention backend by shape of the call: ``python -m benchmarks.backends``.

Times ALiBi attention alone on the CPU, with one thread and with two: forward and backward, and
forward alone as in evaluation. Queries and keys are random, in two sizes. "random" has the size
under fairseq's initialization. "trained" has the size in the trained models measured by
``benchmarks.attention --path``, so that less can be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch

from alibi_fairseq.attention import BACKENDS, FutureMask
from alibi_fairseq.attention.skipping import typical_fraction
from alibi_fairseq.positions.alibi import LinearBias

from . import common
from .attention import kept_fraction

CANDIDATES = ("sdpa", "fold", "skipping")
#: |q|·|k|/√D of a typical query and key, a bound on the difference between two scores.
SCORE_SIZES = {"random": 4.0, "trained": 10.0}
HEADS = 8
TOKENS = 3072
THREADS = (1, 2)
HEAD_SIZES = (16, 32, 64, 128)
LENGTHS = (512, 1024, 2048, 4096)


def main() -> None:
    common.run(__doc__, "backends", measure)


def measure(args) -> Iterator[dict]:
    """Yield one result record per thread count, shape, kind of weights, phase, and backend."""
    before = torch.get_num_threads()
    for threads, head_size, length, weights in product(THREADS, HEAD_SIZES, LENGTHS, SCORE_SIZES):
        torch.set_num_threads(threads)
        yield from measure_shape(args, head_size, length, weights)
    torch.set_num_threads(before)


def measure_shape(args, head_size: int, length: int, weights: str) -> Iterator[dict]:
    """Yield one result record per phase and backend."""
    shape = (max(1, TOKENS // length), HEADS, length, head_size)
    scale = (SCORE_SIZES[weights] / head_size**0.5) ** 0.5
    q = scale * torch.randn(shape)
    k = scale * torch.randn(shape)
    v = torch.randn(shape)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    grad = torch.randn_like(v)
    bias = LinearBias(HEADS)

    def attend(name: str, tensors) -> torch.Tensor:
        return BACKENDS[name].attend(*tensors, FutureMask(bias, length, length), 0.0)

    def training(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(name, leaves), leaves, grad)

    def evaluation(name: str) -> Callable[[], object]:
        return torch.no_grad()(lambda: attend(name, (q, k, v)))

    typical = typical_fraction(bias.slopes(q.device).tolist(), length, length)
    case = {
        "weights": weights,
        "length": length,
        "batch": shape[0],
        "heads": HEADS,
        "head_size": head_size,
        "threads": torch.get_num_threads(),
        "kept_share": round(kept_fraction(q, k, bias), 3),
        "typical_share": round(typical, 3),
    }
    for phase, make in (("train", training), ("evaluate", evaluation)):
        functions = {name: make(name) for name in CANDIDATES}
        records = common.compare(functions, args.rounds, "attention", "sdpa", phase=phase, **case)
        for record in records:
            record["milliseconds"] = round(1000 * record.pop("seconds"), 3)
            yield record


if __name__ == "__main__":
    main()
