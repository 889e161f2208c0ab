"""``alibi-fairseq eval``: perplexity at any length and stride."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..evaluation.request import add_sweep_arguments

    add_sweep_arguments(parser)
    parser.add_argument(
        "--tensorboard-logdir", metavar="DIR", help="log the points there, beside the training run"
    )


def run(args: argparse.Namespace) -> None:
    from ..evaluation.request import sweep_of
    from ..evaluation.sweep import run_sweep
    from ..evaluation.tables import evaluation_table
    from ..evaluation.tensorboard import log_cell

    def log(cell: dict) -> None:
        if args.tensorboard_logdir:
            log_cell(Path(args.tensorboard_logdir), cell)

    cells = run_sweep(sweep_of(args), on_cell=log)
    print(evaluation_table(cells))
    print(f"\nL: window, S: tokens scored per window, ctx: inputs seen. Results: {args.out}")
