"""``alibi-fairseq eval-probe``: how much of a probe's strings a model repeats, at any length."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..data.probes import DEPTHS, TRIALS
    from .evaluate import json_object, lengths, shortest

    parser.add_argument(
        "data", type=Path, metavar="DATA", help="folder of a probe's data: OUT/copy/data-64"
    )
    parser.add_argument("--path", required=True, type=shortest, metavar="CKPT", help="checkpoint")
    parser.add_argument(
        "--lengths", required=True, type=lengths, help="tokens of test sequences, such as 64,256"
    )
    parser.add_argument(
        "--trials",
        type=int,
        default=TRIALS,
        metavar="N",
        help=f"sequences at each length and each of {len(DEPTHS)} depths (default: {TRIALS})",
    )
    parser.add_argument("--out", required=True, metavar="FILE", type=Path, help="results (JSON)")
    parser.add_argument("--device", default="auto", help="auto (the default), cpu, cuda, cuda:1, …")
    parser.add_argument(
        "--model-overrides",
        default="{}",
        type=json_object,
        metavar="JSON",
        help='options of the stored model to override, for example \'{"rotary_scaling": "yarn:4"}\'',
    )


def run(args: argparse.Namespace) -> None:
    from ..errors import BadInput
    from ..evaluation.probe import run_probe
    from ..reporting.probes import accuracy_table
    from ..results.schema import load_document
    from .evaluate import device

    if args.trials < 1:
        raise BadInput(f"--trials must be at least 1, not {args.trials}.")
    if not args.path.is_file():
        raise BadInput(f"There is no checkpoint file '{args.path}'; change --path.")
    where = device(args.device)
    run_probe(
        args.data, args.path, args.lengths, args.out, where, args.model_overrides, args.trials
    )
    print(f"{accuracy_table(load_document(args.out)['cells'])}\nResults: {args.out}")
