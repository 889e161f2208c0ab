"""Attention alone, forward and backward: ``python -m benchmarks.attention [--quick]``.

Every backend of this project on ALiBi, beside what stock fairseq does (a (T, T) mask of floats), the
authors' (B·H, T, T) mask, and torch's causal kernel without any bias as the ideal, in turns. With
``--path`` and ``--data`` also on the queries and keys of a trained checkpoint, layer by layer in
one pass, since what can be skipped depends on how large they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.positions.alibi import LinearBias

from . import common
from .skipping import capture

#: Heads and head size of the small model, and of the paper's.
SHAPES = {"cpu": (8, 64, 3072), "cuda": (8, 128, 16_384)}
IDEAL = "causal kernel, no bias"


def main() -> None:
    parser = common.parser(__doc__, "attention")
    parser.add_argument("--lengths", type=int, nargs="+")
    parser.add_argument("--path", type=Path, help="checkpoint of a trained ALiBi model")
    parser.add_argument("--data", type=Path, help="its data folder")
    args = parser.parse_args()
    common.prepare(args)
    began, where = time.time(), common.device()
    if args.lengths is None:
        on_gpu = where.type == "cuda"
        long = [16_384, 32_768] if on_gpu else [] if args.quick else [8192]
        args.lengths = [512, 1024, 3072, *long]
    peak = common.matmul_peak(where, common.precision(where))
    cells = []
    for length in args.lengths:
        heads, width, tokens = SHAPES[where.type]
        shape = (max(1, tokens // length), heads, length, width)
        # The size of queries and keys under fairseq's initialisation.
        q, k, v = (size * torch.randn(shape) for size in (0.5**0.5, 0.5**0.5, 0.5**0.5))
        cells += measure(args, [(q, k, v)], "random", peak)
        if args.path:
            layers, _ = capture(args.path, args.data, "valid", length)
            cells += measure(args, layers, "trained", peak)
    common.save(args, "attention", cells, began)


def candidates(layers: list, where: torch.device) -> dict[str, Callable[[], None]]:
    """Functions that compute attention of every layer, forward and backward."""
    dtype = common.precision(where)
    leaves = [[x.to(where, dtype).requires_grad_() for x in layer] for layer in layers]
    batch, heads, length, _ = leaves[0][0].shape
    grad = torch.randn_like(leaves[0][0])
    causal = torch.full((length, length), -torch.inf, device=where, dtype=dtype).triu_(1)
    slopes = LinearBias(heads).slopes(where).to(dtype).view(-1, 1, 1)

    def run(function):
        def once():
            for q, k, v in leaves:
                torch.autograd.grad(function(q, k, v), (q, k, v), grad)

        return once

    def masked(mask):
        return run(lambda q, k, v: scaled_dot_product_attention(q, k, v, attn_mask=mask))

    made = {
        IDEAL: run(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=True)),
        "stock: (T, T) mask, no bias": masked(causal),
    }
    if length <= 8192:
        keys = torch.arange(length, device=where, dtype=dtype)
        mask = (causal + slopes * keys).repeat(batch, 1, 1).view(batch, heads, length, length)
        made["materialised: (B·H, T, T) mask"] = masked(mask)
    for name, backend in BACKENDS.items():
        mask = FutureMask(LinearBias(heads), length, length)
        reason = backend.unsupported_reason(*leaves[0], mask, 0.0)
        if reason is None and not (name == "eager" and length > 3072):
            made[name] = run(
                lambda q, k, v, name=name: attend(
                    q, k, v, FutureMask(LinearBias(heads), length, length), backend=name
                )[0]
            )
    return made


def measure(args, layers: list, weights: str, peak: float) -> list[dict]:
    """One cell per candidate."""
    batch, heads, length, width = layers[0][0].shape
    functions = candidates(layers, common.device())
    times = common.seconds_in_turns(functions, args.rounds, f"attention, {length} tokens")
    flops = 7 * batch * heads * length**2 * width * len(layers)  # 14·D per pair, half the pairs
    case = {"weights": weights, "length": length, "batch": batch, "heads": heads}
    case |= {"head_size": width, "layers": len(layers)}
    cells = common.cells_of(times, "attention", IDEAL, **case)
    for cell in cells:
        seconds = cell.pop("seconds")
        cell["milliseconds"] = round(1000 * seconds, 2)
        cell["share_of_peak"] = round(flops / seconds / peak, 3)
    return cells


if __name__ == "__main__":
    main()
