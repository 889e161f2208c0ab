"""``alibi-fairseq study``: tests the paper's claims with small models (docs/experiments.md)."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput
from .experiment_options import (
    add_corpus_argument,
    add_experiment_arguments,
    corpus_paths,
    run_experiment,
)

#: The description in the repository.
DESCRIPTION = Path("configs/study/cpu.yaml")


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
    parser.add_argument(
        "--speeds",
        action="store_true",
        help="train nothing: time updates of all models of the given corpora, in turns; a few "
        "minutes in which nothing else should run",
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.runner import exit_code
    from ..experiments.study import description
    from ..experiments.study.runs import StudyExperiment
    from ..experiments.study.speeds import measure

    if args.speeds and (args.hours is not None or not args.corpus):
        raise BadInput("--speeds trains nothing: it needs --corpus, and takes no --hours.")
    study = description.load(args.description)
    sources = corpus_paths(args.corpus, list(study.corpora))
    experiment = StudyExperiment(
        study, args.description, sources, args.work_dir, args.results, args.cells
    )
    if args.speeds:
        return exit_code(lambda: measure(experiment))
    return run_experiment(args, experiment)
