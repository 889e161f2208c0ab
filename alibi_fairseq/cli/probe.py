"""``alibi-fairseq probe``: what position methods find far back, from synthetic sequences to a heat map."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..data.probes import MULTIPLES, PROBES
from ..errors import BadInput
from ..experiments.comparison import from_mapping
from .compare import TEXT, add_options, corpus_of, run_comparison
from .experiment_options import add_experiment_arguments

OPTIONS = ("methods", "train_lengths", "seeds", "arch", "updates", "tokens_per_update", "lr")
#: What suits the tasks, in place of a comparison's defaults.
DEFAULTS = {"train_lengths": (64,), "updates": 2000, "lr": (0.002,)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "probe",
        metavar="|".join(PROBES),
        help="copy: a random string after a gap; passkey: a key planted in running text. Tested at "
        f"{', '.join(map(str, MULTIPLES))} times the training length",
    )
    parser.add_argument(
        "sources",
        nargs="*",
        metavar="TEXT|DATA_BIN",
        help="of passkey: text files or folders, or a folder of fairseq's binary data",
    )
    add_options(parser, (*OPTIONS, "train_flags", *TEXT), **DEFAULTS)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for everything that is made"
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    text = {name: value for name in TEXT if (value := getattr(args, name)) is not None}
    if args.probe in PROBES and PROBES[args.probe].in_text != bool(args.sources):
        raise BadInput(
            f"The probe '{args.probe}' {'takes no' if args.sources else 'is planted in a'} text; "
            f"{'leave it out' if args.sources else 'name files or folders'}."
        )
    corpus = {**(corpus_of(args.sources, text) if args.sources else {}), "probe": args.probe}
    options = (*OPTIONS, "train_flags", "hours")
    given = {name: value for name in options if (value := getattr(args, name)) is not None}
    defaults = {
        name: DEFAULTS[name] for name in DEFAULTS if "hours" not in given or name != "updates"
    }
    described = {
        **defaults,
        **given,
        "title": f"Probe: {args.probe}",
        "corpora": [{**corpus, "name": args.probe}],
        "user_dir": args.user_dir,
    }
    return run_comparison(args, from_mapping(described))
