"""``alibi-fairseq position-loss``: loss by position within the window."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..evaluation.request import add_sweep_arguments

    add_sweep_arguments(parser)
    parser.add_argument(
        "--buckets",
        type=int,
        default=32,
        metavar="N",
        help="at most N groups of positions, growing geometrically with the position (default: 32)",
    )


def run(args: argparse.Namespace) -> None:
    from ..evaluation.buckets import bucket_edges
    from ..evaluation.request import sweep_of
    from ..evaluation.sweep import run_sweep

    bucket_edges(1, args.buckets)  # says what is wrong with the number
    cells = run_sweep(sweep_of(args, buckets=args.buckets))
    print(f"{len(cells)} groups of positions. Results: {args.out}")
