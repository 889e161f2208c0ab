"""``alibi-fairseq study``: the paper's claims tried on texts at hand; see docs/study.md."""

from __future__ import annotations

import argparse
import fnmatch
from importlib.util import find_spec
from pathlib import Path

from ..errors import BadInput

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
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="text of one of the study's corpora, or a folder of binary data prepared from it "
        "(repeatable); models on corpora that are not given are not trained",
    )
    parser.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help="measure this machine first, and train what fits, the most important first",
    )
    parser.add_argument(
        "--parallel",
        type=int,
        default=1,
        metavar="N",
        help="models at a time, with one thread each (default: %(default)s)",
    )
    parser.add_argument(
        "--cells", metavar="PATTERN", help="only cells with such names, e.g. 'wikipedia-alibi-*'"
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


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..study import description
    from ..study.engine import StudyWork
    from ..workflow import exit_code, locked

    if args.parallel < 1:
        raise BadInput("--parallel must be at least 1.")
    if args.hours is not None and not args.hours > 0:
        raise BadInput(f"--hours must be above 0, not {args.hours}.")
    if args.speeds and (args.hours is not None or not args.corpus):
        raise BadInput("--speeds trains nothing: it needs --corpus, and takes no --hours.")
    study = description.load(args.description)
    sources = sources_of(args.corpus, list(study.corpora))
    work = StudyWork(study, args.description, sources, args.work_dir, args.results)

    def everything() -> None:
        with locked(args.work_dir, "--work-dir"):
            carry_out(work, args)

    return exit_code(everything)


def carry_out(work, args: argparse.Namespace) -> None:
    """Train or time what is asked for and write the page, also if it is stopped.

    Models may be trained where no figures can be drawn; the page is then written elsewhere.
    """
    try:
        if args.speeds:
            time_models(work, args)
        else:
            train_models(work, args)
    finally:
        if find_spec("matplotlib"):
            from ..study.page import write_page

            print(f"\n{write_page(work.study, args.description, args.results)}")
        else:
            print("matplotlib is not installed: write the page elsewhere, from the same --results.")


def train_models(work, args: argparse.Namespace) -> None:
    from ..study.fitting import fitting

    cells = [cell for cell in work.left() if is_wanted(cell, args)]
    if args.hours is not None and cells:
        cells = fitting(cells, args.hours, args.parallel)
    work.run(cells, args.parallel)


def time_models(work, args: argparse.Namespace) -> None:
    from ..study.speeds import measure

    for path in measure([cell for cell in work.given() if is_wanted(cell, args)], args.results):
        print(path)


def is_wanted(cell, args: argparse.Namespace) -> bool:
    return fnmatch.fnmatch(cell.key.name, args.cells or "*")


def sources_of(given: list[str], names: list[str]) -> dict[str, Path]:
    """``NAME=PATH …`` as paths by name.

    Raises:
        BadInput: a name or a path is wrong.
    """
    found = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in names or not path:
            raise BadInput(
                f"--corpus takes NAME=PATH with one of the names {', '.join(names)}, not '{text}'."
            )
        found[name] = Path(path)
        if not found[name].exists():
            raise BadInput(f"--corpus {text}: there is no such file or folder.")
    return found
