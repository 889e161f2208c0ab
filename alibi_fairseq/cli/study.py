"""``alibi-fairseq study``: tests the paper's claims with small models (docs/experiments.md)."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput
from .experiment_options import (
    add_experiment_arguments,
    check_numbers,
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
        help="description of the study (default: %(default)s)",
    )
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="text of a corpus of the study, or binary data prepared from it (repeatable); only models "
        "on these are trained",
    )
    parser.add_argument(
        "--cells",
        metavar="PATTERN",
        help="train only the models whose names match, e.g. 'wikipedia-alibi-*'",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("runs/study"),
        metavar="FOLDER",
        help="folder for data and checkpoints (default: %(default)s)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("runs/study/results"),
        metavar="FOLDER",
        help="folder for finished models and the page; models found there are done (default: %(default)s)",
    )
    parser.add_argument(
        "--speeds",
        action="store_true",
        help="train nothing, but time updates of all models in turns, for a few minutes in which nothing "
        "else should run",
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.study import description
    from ..experiments.study.runs import StudyExperiment

    check_numbers(args)
    if args.speeds and (args.hours is not None or not args.corpus):
        raise BadInput("--speeds trains nothing: it needs --corpus, and takes no --hours.")
    study = description.load(args.description)
    sources = corpus_paths(args.corpus, list(study.corpora))
    pattern = args.cells or "*"
    experiment = StudyExperiment(
        study, args.description, sources, args.work_dir, args.results, pattern
    )
    return time_models(experiment) if args.speeds else run_experiment(args, experiment)


def time_models(experiment) -> int:
    """Time the models of the given texts in turns, and write the page."""
    from ..experiments.runner import exit_code
    from ..experiments.study.speeds import measure
    from ..files import locked

    def everything() -> None:
        with locked(experiment.folder / "lock", experiment.option, "command"):
            experiment.prepare()
            runs = {run.evaluations[-1].key: run for run in experiment.runs}
            print(*measure(runs, experiment.results), sep="\n")
            experiment.report()

    return exit_code(everything)
