"""Pages of the studies, written from templates in Markdown, and sections that pages share."""

from __future__ import annotations

from pathlib import Path

from alibi_fairseq.files import atomic_write
from alibi_fairseq.reporting.page import fill_file

#: Sections that several pages have.
SECTIONS = Path(__file__).with_name("text")


def section(name: str, **slots: object) -> str:
    """Fill the slots of a section, such as ``six-tests``."""
    return fill_file(SECTIONS / f"{name}.md", slots)


def write_page(folder: Path, template: Path, name: str = "README.md", **slots: object) -> Path:
    """Fill the slots of a template, write the page, and return its path."""
    path = folder / name
    with atomic_write(path) as stream:
        stream.write(fill_file(template, slots) + "\n")
    return path


def sections(*parts: str) -> str:
    """Join the parts that are not empty."""
    return "\n\n".join(part.rstrip() for part in parts if part)
