"""``alibi-fairseq study``: tests the paper's claims with small models (docs/experiments.md)."""

from __future__ import annotations

import argparse
from pathlib import Path

from .experiment_options import (
    add_corpus_argument,
    add_experiment_arguments,
    corpus_paths,
    run_experiment,
)

#: The description in the repository.
DESCRIPTION = Path("configs/study.yaml")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "description",
        nargs="?",
        type=Path,
        default=DESCRIPTION,
        metavar="YAML",
        help="what to train and to evaluate (default: %(default)s)",
    )
    add_corpus_argument(
        parser,
        "text of one of the study's corpora, or a folder of binary data prepared from it; models "
        "on corpora that are not given are not trained",
    )
    parser.add_argument(
        "--cells",
        default="*",
        metavar="PATTERN",
        help="only cells with such names, e.g. 'wikipedia-alibi-*'",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("runs/study"),
        metavar="FOLDER",
        help="for data and checkpoints (default: %(default)s)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("runs/study/results"),
        metavar="FOLDER",
        help="of finished cells and the page; cells found there are done (default: %(default)s)",
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.study.study import Study, load

    names = [each.name for each in load(args.description).parts[0].corpora]
    description = load(args.description, corpus_paths(args.corpus, names))
    return run_experiment(args, Study(description, args.work_dir, args.results, args.cells))
