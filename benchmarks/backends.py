"""Which backend is fastest for which call: ``python -m benchmarks.backends``.

ALiBi attention alone on the CPU, forward and backward, and forward alone for evaluation, with one thread
and with two. Queries and keys are random, in two sizes: "random" as fairseq initialises a model,
"trained" as large as those of the trained models measured by ``benchmarks.attention --path``, so that
less can be skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch

from alibi_fairseq.attention import BACKENDS, FutureMask
from alibi_fairseq.attention.skipping import typical_fraction
from alibi_fairseq.positions.alibi import LinearBias

from . import common
from .attention import kept_share

CANDIDATES = ("sdpa", "fold", "skipping")
#: |q|·|k|/√D of a typical query and key: what a score can exceed another one by.
REACH = {"random": 4.0, "trained": 10.0}
HEADS, TOKENS = 8, 3072
THREADS, WIDTHS, LENGTHS = (1, 2), (16, 32, 64, 128), (512, 1024, 2048, 4096)


def main() -> None:
    common.run(__doc__, "backends", measure)


def measure(args) -> Iterator[dict]:
    """One cell per number of threads, shape, kind of weights, phase and backend."""
    before = torch.get_num_threads()
    for threads, width, length, weights in product(THREADS, WIDTHS, LENGTHS, REACH):
        torch.set_num_threads(threads)
        yield from measure_shape(args, width, length, weights)
    torch.set_num_threads(before)


def measure_shape(args, width: int, length: int, weights: str) -> Iterator[dict]:
    shape = (max(1, TOKENS // length), HEADS, length, width)
    size = (REACH[weights] / width**0.5) ** 0.5
    q, k, v = (scale * torch.randn(shape) for scale in (size, size, 1.0))
    leaves, grad = [x.clone().requires_grad_() for x in (q, k, v)], torch.randn_like(v)
    bias = LinearBias(HEADS)

    def attend(name: str, tensors) -> torch.Tensor:
        return BACKENDS[name].attend(*tensors, FutureMask(bias, length, length), 0.0)

    def training(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(name, leaves), leaves, grad)

    def evaluation(name: str) -> Callable[[], object]:
        return torch.no_grad()(lambda: attend(name, (q, k, v)))

    typical = typical_fraction(bias.slopes(q.device).tolist(), length, length)
    case = {"weights": weights, "length": length, "batch": shape[0], "heads": HEADS}
    case |= {"head_size": width, "threads": torch.get_num_threads()}
    case |= {"kept_share": round(kept_share(q, k, bias), 3), "typical_share": round(typical, 3)}
    for phase, make in (("train", training), ("evaluate", evaluation)):
        functions = {name: make(name) for name in CANDIDATES}
        for cell in common.compare(
            functions, args.rounds, "attention", "sdpa", phase=phase, **case
        ):
            yield cell | {"milliseconds": round(1000 * cell.pop("seconds"), 3)}


if __name__ == "__main__":
    main()
