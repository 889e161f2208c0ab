"""Train and evaluate the models of a study and write its page: ``python -m studies``."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from alibi_fairseq import errors
from alibi_fairseq.cli.experiments import corpus_paths
from alibi_fairseq.experiment.config_files import load_config
from alibi_fairseq.experiment.runner import execute_experiment, format_dry_run
from alibi_fairseq.options import names, positive_integer

if TYPE_CHECKING:
    from .config import StudyFile

STUDIES = Path(__file__).resolve().parent
DEFAULT_CONFIG = STUDIES / "small_models" / "primary.yaml"
#: Module that writes the page of a study without a page.py in its folder.
DEFAULT_PAGE = "studies.page"
WORK_DIR = Path("runs/studies")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    parser.add_argument(
        "config",
        nargs="?",
        type=Path,
        default=DEFAULT_CONFIG,
        help="models to train (default: studies/small_models/primary.yaml)",
    )
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="text of a corpus; without any, only the page is written",
    )
    parser.add_argument(
        "--models", metavar="PATTERN", help="glob pattern of models to train (default: all)"
    )
    parser.add_argument(
        "--methods",
        type=names,
        metavar="A,B,…",
        help="train these methods at the training length of the tests instead of the models of the "
        "configuration",
    )
    parser.add_argument("--user-dir", metavar="FOLDER", help="plugin with position methods")
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="FOLDER",
        help=f"folder for data and checkpoints (default: {WORK_DIR})",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("runs/studies/results"),
        metavar="FOLDER",
        help="folder for results and the page; existing results are reused (default: %(default)s)",
    )
    parser.add_argument(
        "--parallel",
        type=positive_integer,
        metavar="N",
        help="runs at a time (default: one per core)",
    )
    parser.add_argument(
        "--readme",
        type=Path,
        metavar="FILE",
        help="README of this repository, whose generated sentences are written as well, and "
        "results/paper/title-claim.md next to it; without --corpus only",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the commands of all runs")
    return parser


def reject_unused_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Exit with code 2 if an option would have no effect."""
    if args.corpus and args.readme:
        parser.error(
            "--readme cannot be combined with --corpus. "
            "Pass --readme without --corpus after the training."
        )
    for name in ("models", "work_dir", "parallel", "methods", "dry_run"):
        if getattr(args, name) and not args.corpus:
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} requires a corpus to train on. Pass --corpus NAME=PATH.")


def page_module(path: Path) -> str:
    """Return the module that writes the page of a study.

    It is ``page.py`` in the study's folder of this package, whose configurations then share a page,
    or else ``page.py`` of this package.

    Args:
        path: YAML file of the study.
    """
    folder = path.resolve().parent
    if folder.parent == STUDIES and (folder / "page.py").is_file():
        return f"studies.{folder.name}.page"
    return DEFAULT_PAGE


def write_study_page(study: StudyFile) -> Path:
    """Write the page of a study and return its path."""
    # Imported here, so that a machine without the packages of the page can train the models.
    return import_module(page_module(study.path)).write_study_page(study)


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code, 75 if it was stopped by a signal."""
    parser = make_parser()
    args = parser.parse_args(arguments)
    reject_unused_options(parser, args)
    # Imported here, so that a missing package of the extra "study" is reported in one sentence.
    from .config import StudyConfig, StudyFile
    from .experiment import Study

    if args.user_dir:
        from fairseq.utils import import_user_module

        import_user_module(args)
    config = load_config(args.config, StudyConfig)
    if not config.tests:
        if page_module(args.config) == DEFAULT_PAGE:
            raise errors.UserInputError(
                f"{args.config} does not name the models of the tests, so no page would have its "
                "results. Add tests: {corpus: NAME, train_length: L}."
            )
        if args.methods:
            parser.error(
                f"{args.config} does not name the models of the tests, which --methods needs."
            )
    if args.methods:
        config = config.with_methods(args.methods, args.user_dir)
    file = StudyFile(args.config, config, args.results)
    write_page = partial(write_study_page, file)
    if not args.corpus:
        print(write_page())
        if args.readme:
            from .readme.blocks import write_readme

            write_readme(args.readme)
        return 0
    texts = corpus_paths(args.corpus, [corpus.name for corpus in config.corpora])
    folder = (args.work_dir or WORK_DIR) / args.config.stem
    study = Study(config, texts, folder, file.results, write_page, args.models or "*")
    if not study.plan().runs:
        parser.error(f"--models {args.models} matches no model of {args.config}. Pass another.")
    if args.dry_run:
        print(format_dry_run(study))
        return 0
    return execute_experiment(study, args.parallel)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(errors.print_error(error))
