"""Writer of a report: files of tables and figures, and the text of the page that includes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..files import atomic_write
from ..reporting import latex
from ..reporting.markdown import literal, to_markdown
from ..reporting.table import Table


class ReportFolder:
    """Writer of tables (``tables/*.md``), figures (``figures/*``), and the text of the page.

    Attributes:
        out: output folder.
        with_latex: True to also write tables for papers, and captions of figures, in LaTeX.
        names: folder and name of each written file, without suffix.
        page: parts of the page.
    """

    def __init__(self, out: Path, with_latex: bool = False) -> None:
        self.out = out
        self.with_latex = with_latex
        self.names: set[tuple[str, str]] = set()
        self.page: list[str] = []

    def add_tables(
        self,
        name: str,
        title: str,
        tables: Sequence[Table],
        heading: str = "",
        notes: Sequence[str] = (),
        for_paper: Sequence[Table] = (),
        label: str = "",
    ) -> None:
        """Write tables to a file and add them to the page as a section.

        Args:
            name: file name, which may have any characters.
            title: title of the file.
            tables: the tables.
            heading: title of the section on the page (default: ``title``).
            notes: notes in Markdown, for a list below the tables.
            for_paper: tables that are also written in LaTeX.
            label: first words of the labels in LaTeX.
        """
        section = to_markdown(tables)
        if notes:
            section += "\n"
            for note in notes:
                section += f"- {note}\n"
        path = self.out / "tables" / f"{self._unique('tables', name)}.md"
        with atomic_write(path) as stream:
            stream.write(f"# {literal(title)}\n\n{section}")
        if self.with_latex and for_paper:
            with atomic_write(path.with_suffix(".tex")) as stream:
                stream.write(latex.document_part(for_paper, name=label))
        self.page.append(f"### {literal(heading or title)}\n\n{section}")

    def figure_paths(self, name: str) -> list[Path]:
        """Return the paths of a new figure as PNG, SVG, and PDF.

        Args:
            name: file name, which may have any characters.
        """
        unique = self._unique("figures", name)
        return [self.out / "figures" / f"{unique}.{suffix}" for suffix in ("png", "svg", "pdf")]

    def add_figure(self, paths: Sequence[Path], caption: str, conditions: str = "") -> None:
        """Add a drawn figure to the page.

        Args:
            paths: paths of the figure, the PNG first.
            caption: caption of the figure.
            conditions: the rest of the caption in LaTeX; empty: no LaTeX.
        """
        if self.with_latex and conditions:
            with atomic_write(paths[0].with_suffix(".tex")) as stream:
                stream.write(latex.figure(paths[0].stem, f"{caption}. {conditions.rstrip('.')}."))
        text = literal(caption)
        self.page.append(f"![{text}](figures/{paths[0].name})\n\n*{text}*\n")

    def write_page(self) -> Path:
        """Write the page ``report.md``, and return its path."""
        path = self.out / "report.md"
        with atomic_write(path) as stream:
            stream.write("\n".join(self.page))
        return path

    def _unique(self, folder: str, name: str) -> str:
        """Convert a name to a file name without suffix that is not yet used in a folder."""
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:150]
        unique = base
        number = 1
        while (folder, unique) in self.names:
            number += 1
            unique = f"{base}-{number}"
        self.names.add((folder, unique))
        return unique
