"""``alibi-fairseq demo``: what ``scripts/demo.sh`` runs once the environment is there."""

from __future__ import annotations

import argparse
from pathlib import Path

from .experiment_options import add_experiment_arguments, names, run_experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text",
        type=Path,
        help="text file or folder to use (default: the documentation of Python)",
    )
    parser.add_argument("--quick", action="store_true", help="a short run that shows every step")
    parser.add_argument(
        "--methods",
        type=names,
        default="alibi,sinusoidal",
        metavar="A,B,…",
        help="position methods, or 'all' (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, help="output folder (default: runs/demo, or runs/demo-quick)"
    )
    parser.add_argument("--results", type=Path, help="folder for table and figure (default: --out)")
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.demonstration import Demonstration, comparison_of

    out = args.out or Path("runs/demo-quick" if args.quick else "runs/demo")
    comparison = comparison_of(args.text, args.methods, args.quick, out)
    command = ["./scripts/demo.sh", *args.arguments[1:]]
    experiment = Demonstration(comparison, out, args.parallel, args.results, command, args.quick)
    return run_experiment(args, experiment)
