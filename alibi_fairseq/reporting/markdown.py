"""The report as Markdown: tables that also read well unrendered, numbers, and the page of all."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.points import Point, is_chance

MISSING = "missing"  # a cell we could measure and have not
LONGEST_NAME = 150  # of a file, without its ending
NOTHING = "–"  # a cell that does not exist
CORNER = "trained ↓ evaluated at →"
CHANCE = "(chance)"
#: Stands under tables that have such cells.
CHANCE_NOTE = (
    "chance: at least nine tenths of the bits per token of guessing any entry of the dictionary; the "
    "model is untrained or has diverged."
)


class Markup(str):
    """Markdown of our own, such as a link, that is not to be shown as it is."""


def literal(text: str) -> str:
    """Text that Markdown and HTML show as it is: nothing in a results file is markup."""
    if isinstance(text, Markup):
        return text
    one_line = " ".join(str(text).split())
    escaped = html.escape(one_line, quote=False)
    return re.sub(r"[\\`*\[\]|]|(?<!\w)_|_(?!\w)", r"\\\g<0>", escaped)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table with padded columns, the first ``left`` of them left-aligned."""
    columns = []
    for number, column in enumerate(zip(headers, *rows, strict=True)):
        cells = [literal(cell) for cell in column]
        width = max(3, *map(len, cells))
        if number < left:
            columns.append([cell.ljust(width) for cell in (cells[0], "-" * width, *cells[1:])])
        else:
            rule = "-" * (width - 1) + ":"
            columns.append([cell.rjust(width) for cell in (cells[0], rule, *cells[1:])])
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*columns))


def perplexity(value: float) -> str:
    """Two decimals as in the paper; fewer where they would be noise."""
    if value >= 1e6:
        return f"{value:.2e}"
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def point(measured: Point | None) -> str:
    """A perplexity, with its spread where seeds were averaged; ``missing`` if there is none."""
    if measured is None:
        return MISSING
    if measured.perplexity is None:
        return measured.status
    text = perplexity(measured.perplexity)
    if measured.spread is not None:
        text += f" ± {perplexity(measured.spread)} ({measured.seeds} seeds)"
    chance = is_chance(measured.perplexity, measured.vocabulary)
    return f"{text} {CHANCE}" if chance else text


def difference(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < 1000 else f"{value:+.2g}"


def thousands(value: float) -> str:
    """Speeds as the paper prints them: 28.3k; plain below one thousand."""
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


class Report:
    """Writes tables (``tables/*.md``) and figures (``figures/*``) and collects the page of all."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.names: set[tuple[str, str]] = set()
        self.page: list[str] = []

    def table(self, name: str, title: str, body: str, notes: list[str] | None = None) -> None:
        """A table as a file and as a section of the page."""
        remarks = "".join(f"- {note}\n" for note in notes or [])
        section = f"{literal(title)}\n\n{body}" + (f"\n{remarks}" if remarks else "")
        with atomic_write(self.out / "tables" / f"{self._unique('tables', name)}.md") as stream:
            stream.write(f"# {section}")
        self.page.append(f"### {section}")

    def figure(self, name: str, caption: str, draw: Callable[..., None]) -> None:
        """A figure as PNG, SVG and PDF; ``draw`` takes the paths."""
        name = self._unique("figures", name)
        paths = [self.out / "figures" / f"{name}{suffix}" for suffix in (".png", ".svg", ".pdf")]
        draw(*paths)
        caption = literal(caption)
        self.page.append(f"![{caption}](figures/{name}.png)\n\n*{caption}*\n")

    def _unique(self, folder: str, name: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST_NAME]
        numbered = (base if number == 1 else f"{base}-{number}" for number in count(1))
        unique = next(name for name in numbered if (folder, name) not in self.names)
        self.names.add((folder, unique))
        return unique

    def write(self) -> Path:
        """Write ``report.md``; returns its path."""
        path = self.out / "report.md"
        with atomic_write(path) as stream:
            stream.write("\n".join(self.page))
        return path
