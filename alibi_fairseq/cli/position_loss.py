"""``alibi-fairseq position-loss``: loss by position within the window."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from .sweep_options import add_sweep_arguments

    add_sweep_arguments(parser)
    parser.add_argument(
        "--buckets",
        type=int,
        default=32,
        metavar="N",
        help="at most N position buckets, their width growing geometrically (default: 32)",
    )


def run(args: argparse.Namespace) -> None:
    from ..evaluation.measure import bucket_edges
    from ..evaluation.sweep import run_sweep
    from .sweep_options import sweep_of

    bucket_edges(1, args.buckets)  # raises BadInput before anything is loaded
    cells = run_sweep(sweep_of(args, buckets=args.buckets))
    print(f"{len(cells)} position buckets. Results: {args.out}")
