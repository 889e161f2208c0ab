"""Which backend is fastest for which call: ``python -m benchmarks.backends``.

ALiBi attention alone on the CPU, forward and backward, and forward alone for evaluation. Queries and
keys are random, in two sizes: "random" as fairseq initialises a model, "trained" as large as those of
the trained models measured by ``benchmarks.attention --path``, so that less can be skipped. With ``--add``
in pieces:

    python -m benchmarks.backends --add --threads 1 --head-sizes 16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import torch

from alibi_fairseq.attention import BACKENDS, FutureMask
from alibi_fairseq.attention.skipping import typical_share
from alibi_fairseq.positions.alibi import LinearBias

from . import common
from .attention import kept_share

CANDIDATES = ("sdpa", "fold", "skipping")
BASELINE = "sdpa"
#: |q|·|k|/√D of a typical query and key: what a score can exceed another one by.
REACH = {"random": 4.0, "trained": 10.0}
TOKENS = 3072


def main() -> None:
    parser = common.parser(__doc__, "backends")
    parser.add_argument("--head-sizes", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--heads", type=int, nargs="+", default=[8])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096])
    common.run(parser, "backends", measure)


def measure(args) -> Iterator[dict]:
    """One cell per shape, kind of weights, phase and backend."""
    for width, heads, length, weights in product(args.head_sizes, args.heads, args.lengths, REACH):
        yield from measure_shape(args, width, heads, length, weights)


def measure_shape(args, width: int, heads: int, length: int, weights: str) -> Iterator[dict]:
    where = common.device()
    shape = (max(1, TOKENS // length), heads, length, width)
    size = (REACH[weights] / width**0.5) ** 0.5
    q, k, v = (scale * torch.randn(shape, device=where) for scale in (size, size, 1.0))
    q, k, v = (x.to(common.precision(where)) for x in (q, k, v))
    leaves, grad = [x.clone().requires_grad_() for x in (q, k, v)], torch.randn_like(v)
    bias = LinearBias(heads)

    def attend(name: str, tensors) -> torch.Tensor:
        return BACKENDS[name].attend(*tensors, FutureMask(bias, length, length), 0.0)

    def training(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(attend(name, leaves), leaves, grad)

    def evaluation(name: str) -> Callable[[], object]:
        return torch.no_grad()(lambda: attend(name, (q, k, v)))

    typical = typical_share(bias.slopes(where).tolist(), length, length)
    case = {"weights": weights, "length": length, "batch": shape[0], "heads": heads}
    case |= {"head_size": width, "threads": torch.get_num_threads()}
    case |= {"kept_share": round(kept_share(q, k, bias), 3), "typical_share": round(typical, 3)}
    for phase, make in (("train", training), ("evaluate", evaluation)):
        functions = {name: make(name) for name in CANDIDATES}
        times = common.seconds_in_turns(functions, args.rounds, f"{phase}, {length} tokens")
        for cell in common.cells_of(times, "attention", BASELINE, phase=phase, **case):
            yield cell | {"milliseconds": round(1000 * cell.pop("seconds"), 3)}


if __name__ == "__main__":
    main()
