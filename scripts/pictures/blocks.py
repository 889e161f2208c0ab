"""Perplexity by length of the same comparison in the paper's block and in the modern block."""

from __future__ import annotations

import os
from pathlib import Path

from alibi_fairseq.reporting.figure_panels import PanelRows, draw_panels
from alibi_fairseq.reporting.figures_by_length import length_line
from alibi_fairseq.reporting.rows import build_rows
from alibi_fairseq.results.file import load

#: Title of each panel, by the folder of its results.
BLOCKS = {"paper-block": "the paper's block", "modern-block": "modern block"}


def draw_blocks(examples: Path, *paths: str | os.PathLike) -> None:
    """Draw a panel per block, with the same axis of perplexities.

    Args:
        examples: folder with a folder of results per block.
        paths: files to write.
    """
    panels = []
    for folder, name in BLOCKS.items():
        rows = build_rows(load(examples / folder / "results.json").results)
        panels.append(PanelRows(rows, [name]))
    draw_panels("", panels, *paths, make_line=length_line)
