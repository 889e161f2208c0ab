"""``alibi-fairseq report``: results as tables and figures, beside the paper's where they compare."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..paper.report import write_report
from ..paper.report_data import collect
from .options import CliCommand, option


@dataclass
class ReportCommand(CliCommand):
    """Tables and figures of results."""

    results: list[Path] = option(
        "results files (JSON) or folders of them (default: only the paper's numbers)",
        nargs="*",
        metavar="RESULTS",
    )
    out: Path = option(
        "folder for report.md, tables/ and figures/", Path("results"), metavar="FOLDER"
    )
    paper: bool = option(
        "include all of the paper's tables and figures, not only those on texts of your results",
        False,
    )
    title: str | None = option("title of the page and of your own figures", None)

    def __call__(self) -> None:
        results = collect(self.results)
        page = write_report(results, self.out, self.paper or not self.results, self.title)
        cells = sum(len(document["cells"]) for _, document in results.documents)
        comparable = sum(not point.unlike_paper for point in results.points)
        print(f"{cells} measured cells, {comparable} of them in a setting of the paper.")
        print(f"Tables and figures: {page}")
