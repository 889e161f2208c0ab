"""Command ``alibi-fairseq report``: tables and figures of results.

Results that are comparable with the paper's are shown next to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UserInputError, did_you_mean
from ..options import names, option
from ..paper.collected_results import CollectedResults, collect
from ..paper.comparability import incomparability_reason
from ..reporting.perplexity_by_length import MODEL_COLUMNS, available_columns
from .options import CliCommand


def file_and_text(text: str) -> tuple[Path, str]:
    """Return the file and the text of ``FILE=TEXT``."""
    file, _, label = text.partition("=")
    if not label or not Path(file).is_file():
        raise ValueError("must be FILE=TEXT, a results file and the name of its models")
    return Path(file).resolve(), label


@dataclass
class ReportCommand(CliCommand):
    """Options of ``alibi-fairseq report``."""

    results: list[Path] = option(
        "results files (JSON), folders of them, or output folders of compare; without any, the "
        "report shows only the paper's numbers",
        nargs="*",
        metavar="RESULTS",
    )
    out: Path = option(
        "output folder, for report.md, tables/, and figures/", Path("runs/report"), metavar="FOLDER"
    )
    paper: bool = option(
        "show all tables and figures of the paper, not only those on the corpora of the results",
        False,
    )
    title: str | None = option(
        "title of the report and of figures without a counterpart in the paper",
        None,
        metavar="TEXT",
    )
    label: list[tuple[Path, str]] = option(
        "name of the models of a results file in tables and figures, instead of position method "
        "and training length; if the models differ in one of these, it is added (repeatable)",
        (),
        action="append",
        type=file_and_text,
        metavar="FILE=TEXT",
    )
    columns: list[str] = option(
        "columns of the tables of your own results, in this order, for example "
        f"parameters,512,3072: evaluation lengths, and {', '.join(MODEL_COLUMNS)} (default: all "
        "lengths)",
        (),
        type=names,
        metavar="A,B,…",
    )
    latex: bool = option(
        "also write your own tables and figures for LaTeX, as tables/*.tex and figures/*.tex",
        False,
    )

    def __call__(self) -> None:
        """Write the report, and print its path.

        Raises:
            UserInputError: as :func:`.collect`.
        """
        from ..paper.report import write_report  # imports matplotlib

        collected = collect(self.results, dict(self.label))
        self.check_columns(collected)
        with_paper = self.paper or not self.results
        page = write_report(
            collected, self.out, with_paper, self.title, self.columns, with_latex=self.latex
        )
        measured = sum(len(file.results) for _, file in collected.files)
        comparable = sum(incomparability_reason(result) is None for result in collected.results)
        print(f"{measured} measurements, {comparable} comparable with the paper.")
        print(f"Tables and figures: {page}")

    def check_columns(self, collected: CollectedResults) -> None:
        """Check that each column can be shown.

        Raises:
            UserInputError: no results have a column.
        """
        available = available_columns(collected.results)
        for name in self.columns:
            if name not in available:
                raise UserInputError(
                    f"--columns: the results have no column '{name}'."
                    f"{did_you_mean(name, available)} Choose from {', '.join(available)}."
                )
