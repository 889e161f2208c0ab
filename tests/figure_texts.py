"""Texts of figures in SVG format."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

TEXT = "{http://www.w3.org/2000/svg}text"


def figure_texts(path: Path) -> list[str]:
    """Return the texts of a figure, one string per line of text."""
    return [element.text or "" for element in ElementTree.parse(path).iter(TEXT)]
