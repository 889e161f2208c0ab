"""Writer of a report: files of tables and figures, and the text of the page that includes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..files import atomic_write
from ..reporting import latex
from ..reporting.markdown import literal


class ReportWriter:
    """Writer of tables (``tables/*.md``), figures (``figures/*``), and the text of the page.

    Attributes:
        out: output folder.
        names: folder and name of each written file, without suffix.
        page: parts of the page.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.names: set[tuple[str, str]] = set()
        self.page: list[str] = []

    def add_table(
        self,
        name: str,
        title: str,
        body: str,
        notes: list[str] | None = None,
        latex_text: str = "",
        heading: str = "",
    ) -> None:
        """Write a table to a file and add it to the page as a section.

        Args:
            name: file name, which may have any characters.
            title: title of the file.
            body: the table in Markdown.
            notes: notes in Markdown, for a list below the table.
            latex_text: the table in LaTeX, for another file; empty: none.
            heading: title of the section on the page (default: ``title``).
        """
        section = body
        if notes:
            section += "\n"
            for note in notes:
                section += f"- {note}\n"
        unique = self._unique("tables", name)
        path = self.out / "tables" / f"{unique}.md"
        with atomic_write(path) as stream:
            stream.write(f"# {literal(title)}\n\n{section}")
        if latex_text:
            with atomic_write(path.with_suffix(".tex")) as stream:
                stream.write(latex_text)
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
            conditions: the rest of the caption in LaTeX, for another file; empty: none.
        """
        if conditions:
            with atomic_write(paths[0].with_suffix(".tex")) as stream:
                stream.write(latex.figure(paths[0].stem, f"{caption}. {conditions.rstrip('.')}."))
        text = literal(caption)
        self.page.append(f"![{text}](figures/{paths[0].name})\n\n*{text}*\n")

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
