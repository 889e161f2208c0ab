"""``alibi-fairseq report``: results as tables and figures, beside the paper's where they compare."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        metavar="RESULTS",
        help="results files (JSON) or folders of them (default: only the paper's numbers)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="FOLDER",
        help="folder for report.md, tables/ and figures/ (default: %(default)s)",
    )
    parser.add_argument(
        "--paper",
        action="store_true",
        help="include all of the paper's tables and figures, not only those on texts of your results",
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="RESULTS=NAME",
        help="name for the models of a results file or folder (repeatable)",
    )
    parser.add_argument("--title", help="title of the page and of your own figures")


def run(args: argparse.Namespace) -> None:
    from ..reporting.collect import collect
    from ..reporting.report import write_report

    labels = {}
    for given in args.label:
        path, _, name = given.rpartition("=")
        if not path or not name:
            raise BadInput(f"--label takes RESULTS=NAME, not '{given}'.")
        labels[Path(path)] = name
    results = collect(args.results, labels, args.title)
    page = write_report(results, args.out, with_paper=args.paper or not args.results)
    cells = sum(len(document["cells"]) for _, document in results.documents)
    beside = sum(not point.unlike_paper for point in results.points)
    print(f"{cells} measured cells, {beside} of them in a setting of the paper.")
    print(f"Tables and figures: {page}")
