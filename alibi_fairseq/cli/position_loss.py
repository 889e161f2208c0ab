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
        help="largest number of position buckets, whose width grows geometrically (default: 32)",
    )


def run(args: argparse.Namespace) -> int:
    from ..evaluation.measure import bucket_edges
    from ..evaluation.sweep import run_sweep
    from ..reporting.own_results import position_table
    from ..results.points import document_points
    from ..results.schema import load_document
    from .experiment_options import wants_slurm
    from .sweep_options import submit_shards, sweep_of

    bucket_edges(1, args.buckets)  # raises BadInput before anything is loaded
    if wants_slurm(args):
        return submit_shards(args)
    run_sweep(sweep_of(args, buckets=args.buckets))
    print(position_table(document_points(load_document(args.out))))
    print(f"Loss in bits per token. Results: {args.out}")
    return 0
