"""Layers of the package, as pyproject.toml defines them for its import rules."""

from __future__ import annotations

import os
import re
from pathlib import Path

import matplotlib
import tomllib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from alibi_fairseq.reporting.plots import SETTINGS, save

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
PACKAGE = "alibi_fairseq"
#: Packages that work without fairseq and import nothing else of this package but the lowest layer.
CORE = {"blocks", "attention", "positions"}
_WIDTH = 10.0
_GAP = 0.12


def read_layers() -> list[list[str]]:
    """Return the packages of each layer, from the highest to the lowest."""
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each.get("containers") == [PACKAGE]]
    return [re.split(" [|:] ", layer) for layer in layers]


@matplotlib.rc_context(SETTINGS)
def draw_layers(*paths: str | os.PathLike) -> None:
    """Draw a row of boxes per layer, numbered from the bottom.

    Args:
        paths: files to write.
    """
    layers = read_layers()
    figure = Figure(figsize=(9.2, 0.42 * len(layers) + 0.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(-1, _WIDTH + 0.03)
    axes.set_ylim(len(layers), 0)
    for row, packages in enumerate(layers):
        number = len(layers) - row
        axes.text(-0.5, row + 0.5, str(number), ha="center", va="center", color="#666666")
        _draw_row(axes, row, packages)
    axes.annotate(
        "",
        (-0.85, len(layers) - 0.2),
        xytext=(-0.85, 0.2),
        arrowprops={"arrowstyle": "->", "color": "#666666"},
    )
    axes.text(-1.02, len(layers) / 2, "imports", rotation=90, va="center", color="#666666")
    save(figure, *paths)


def _draw_row(axes: Axes, row: int, packages: list[str]) -> None:
    """Draw the boxes of a layer, which fill the width together."""
    width = (_WIDTH - _GAP * (len(packages) - 1)) / len(packages)
    for index, package in enumerate(packages):
        left = index * (width + _GAP)
        is_core = package in CORE
        box = FancyBboxPatch(
            (left, row + 0.12),
            width,
            0.76,
            boxstyle="round,pad=0,rounding_size=0.1",
            facecolor="#EAF2F8",
            edgecolor="#333333" if is_core else "#A6B8C7",
            linewidth=2.2 if is_core else 0.8,
        )
        axes.add_patch(box)
        axes.text(left + width / 2, row + 0.5, package, ha="center", va="center", fontsize=9)
