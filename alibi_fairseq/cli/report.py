"""Command ``alibi-fairseq report``: tables and figures of results, next to the paper's where comparable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..paper.report import write_report
from ..paper.report_data import collect
from .options import CliCommand, option


@dataclass
class ReportCommand(CliCommand):
    """Options of ``alibi-fairseq report``."""

    results: list[Path] = option(
        "results files (JSON), or folders that hold them (default: the paper's numbers only)",
        nargs="*",
        metavar="RESULTS",
    )
    out: Path = option(
        "folder for report.md, tables/, and figures/", Path("results"), metavar="FOLDER"
    )
    paper: bool = option(
        "include all tables and figures of the paper, not only those on the corpora of the results",
        False,
    )
    title: str | None = option(
        "title of the report and of figures without a counterpart in the paper", None
    )

    def __call__(self) -> None:
        """Write the report, and print its path."""
        results = collect(self.results)
        page = write_report(results, self.out, self.paper or not self.results, self.title)
        measured = sum(len(document["cells"]) for _, document in results.documents)
        comparable = sum(not point.unlike_paper for point in results.points)
        print(f"{measured} measurements, {comparable} comparable with the paper.")
        print(f"Tables and figures: {page}")
