"""Which backend is fastest for which call: ``python -m benchmarks.backends``.

ALiBi attention alone on the CPU, forward and backward, and forward alone for evaluation. Queries and
keys are random, in two sizes: "random" as fairseq initialises a model, "trained" as large as those of
the trained models measured by ``benchmarks.skipping``, so that less can be skipped. With ``--add``
in pieces:

    python -m benchmarks.backends --add --threads 1 --head-sizes 16
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from alibi_fairseq.attention import BACKENDS, FutureMask, chooser
from alibi_fairseq.attention.skipping import certify, typical_share
from alibi_fairseq.positions.alibi import LinearBias

from . import common

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
    args = parser.parse_args()
    common.prepare(args)
    began, cells = time.time(), []
    for width in args.head_sizes:
        for heads in args.heads:
            for length in args.lengths:
                for weights in REACH:
                    cells += measure(args, width, heads, length, weights)
    common.save(args, "backends", cells, began)


def inputs(width: int, heads: int, length: int, weights: str) -> tuple[torch.Tensor, ...]:
    """q, k, v, each (B, H, T, D)."""
    batch = max(1, TOKENS // length)
    size = (REACH[weights] / width**0.5) ** 0.5
    scales = (size, size, 1.0)
    where = common.device()
    return tuple(scale * torch.randn(batch, heads, length, width, device=where) for scale in scales)


def measure(args, width: int, heads: int, length: int, weights: str) -> list[dict]:
    """One cell per backend and pass."""
    q, k, v = (x.to(common.precision(x.device)) for x in inputs(width, heads, length, weights))
    bias = LinearBias(heads)
    leaves, grad = [x.clone().requires_grad_() for x in (q, k, v)], torch.randn_like(v)

    def mask() -> FutureMask:
        return FutureMask(bias, length, length)

    def training(name: str) -> Callable[[], object]:
        return lambda: torch.autograd.grad(
            BACKENDS[name].attend(*leaves, mask(), 0.0), leaves, grad
        )

    def evaluation(name: str) -> Callable[[], object]:
        return torch.no_grad()(lambda: BACKENDS[name].attend(q, k, v, mask(), 0.0))

    kept = kept_share(q, k, bias)
    typical = typical_share(bias.slopes(q.device).tolist(), length, length)
    cells: list[dict] = []
    for phase, make, tensors in (
        ("train", training, leaves),
        ("evaluate", evaluation, (q, k, v)),
    ):
        functions = {name: make(name) for name in CANDIDATES}
        label = f"{phase}, {length} tokens"
        times = common.seconds_in_turns(functions, args.rounds, label)
        case = {"phase": phase, "weights": weights, "length": length, "batch": q.shape[0]}
        case |= {"heads": heads, "head_size": width, "threads": torch.get_num_threads()}
        case |= {"kept_share": round(kept, 3), "typical_share": round(typical, 3)}
        measured = common.cells_of(times, "attention", BASELINE, **case)
        for cell in measured:
            cell["milliseconds"] = round(1000 * cell.pop("seconds"), 3)
        cells += measured
        chosen = chooser.choose("auto", *tensors, mask(), 0.0)
        print(f"D={width} H={heads}, {kept:.0%} kept; auto: {chosen}", flush=True)
    return cells


def kept_share(q: torch.Tensor, k: torch.Tensor, bias: LinearBias) -> float:
    """Share of the scores of the causal triangle that lie within the certified windows."""
    length = q.shape[2]
    windows = certify(q, k, bias.slopes(q.device)).windows.amax(dim=0)  # (H,)
    outside = (length - 1 - windows).clamp(min=0)
    return float(1 - (outside * (outside + 1) / (length * (length + 1))).mean())


if __name__ == "__main__":
    main()
