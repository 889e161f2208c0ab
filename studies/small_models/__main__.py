"""Train and evaluate the models and write the page: ``python -m studies.small_models``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alibi_fairseq import errors
from alibi_fairseq.cli.reproduce import corpus_paths
from alibi_fairseq.compare.config_files import load
from alibi_fairseq.options import positive
from alibi_fairseq.runs.dry_run import format_dry_run
from alibi_fairseq.runs.runner import execute_experiment

FOLDER = Path(__file__).parent


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(prog="study", description=__doc__)
    parser.add_argument(
        "config",
        nargs="?",
        type=Path,
        default=FOLDER / "primary.yaml",
        help="models to train (default: primary.yaml)",
    )
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="text of a corpus; without any, only the page is written",
    )
    parser.add_argument(
        "--models", default="*", metavar="PATTERN", help="glob pattern of models to train"
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=Path("runs/small_models"),
        metavar="FOLDER",
        help="folder for data and checkpoints (default: %(default)s)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("runs/small_models/results"),
        metavar="FOLDER",
        help="folder for results and the page; existing results are reused (default: %(default)s)",
    )
    parser.add_argument(
        "--parallel", type=positive, metavar="N", help="runs at a time (default: one per core)"
    )
    parser.add_argument(
        "--readme",
        type=Path,
        metavar="FILE",
        help="README whose table is written next to the page",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands of all runs")
    return parser


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code, 75 if it was stopped by a signal."""
    args = make_parser().parse_args(arguments)
    # Imported here, so that a missing package of the extra "study" is reported in one sentence.
    from .experiment import Study, StudyConfig
    from .page import write_page, write_readme_table

    if not args.corpus:
        print(write_page(args.results))
        if args.readme:
            write_readme_table(args.results, args.readme)
        return 0
    config = load(args.config, StudyConfig)
    texts = corpus_paths(args.corpus, [corpus["name"] for corpus in config.corpora])
    part = args.config.stem
    study = Study(
        config, texts, args.work_dir / part, args.results / part, args.results, args.models
    )
    if args.dry_run:
        print(format_dry_run(study))
        return 0
    return execute_experiment(study, args.parallel)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(errors.print_error(error))
