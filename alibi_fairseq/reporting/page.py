"""A report while it is written: tables and figures as files of their own, and one page of all."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from alibi_fairseq.files import atomic_write


class Report:
    """Collects the page while tables (``tables/*.md``) and figures (``figures/*``) are written."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.names: set[tuple[str, str]] = set()
        self.page: list[str] = []

    def text(self, *paragraphs: str) -> None:
        """Paragraphs of the page."""
        self.page += paragraphs

    def table(self, name: str, title: str, body: str, notes: list[str] | None = None) -> None:
        """A table as a file of its own and on the page, under a heading of its own."""
        remarks = "".join(f"- {note}\n" for note in notes or [])
        section = f"{title}\n\n{body}" + (f"\n{remarks}" if remarks else "")
        with atomic_write(self.out / "tables" / f"{self._unique('tables', name)}.md") as stream:
            stream.write(f"# {section}")
        self.page.append(f"### {section}")

    def figure(self, name: str, caption: str, draw: Callable[..., None]) -> None:
        """A figure as PNG and SVG; ``draw`` is given the two paths."""
        name = self._unique("figures", name)
        paths = [self.out / "figures" / f"{name}{suffix}" for suffix in (".png", ".svg")]
        draw(*paths)
        self.page.append(f"![{caption}](figures/{name}.png)\n\n*{caption}*\n")

    def _unique(self, folder: str, name: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
        unique, number = base, 1
        while (folder, unique) in self.names:
            number += 1
            unique = f"{base}-{number}"
        self.names.add((folder, unique))
        return unique

    def write(self) -> Path:
        """The page; returns where it is."""
        path = self.out / "report.md"
        with atomic_write(path) as stream:
            stream.write("\n".join(self.page))
        return path


def drawing(draw: Callable[..., None], *arguments: object) -> Callable[..., None]:
    """A drawing function that needs nothing but the paths to write."""
    return lambda *paths: draw(*arguments, *paths)
