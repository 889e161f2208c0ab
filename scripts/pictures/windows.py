"""Windows of an evaluation at three strides: which tokens each scores, and their context."""

from __future__ import annotations

import os

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from alibi_fairseq.evaluation.windows import plan_windows
from alibi_fairseq.reporting.plots import SETTINGS, save

TOKENS = 12
LENGTH = 4
#: Strides with the titles of their panels.
STRIDES = {
    4: f"L = {LENGTH}, S = 4 (no overlap)",
    2: f"L = {LENGTH}, S = 2",
    1: f"L = {LENGTH}, S = 1",
}
_SCORED = "#333333"
_CONTEXT = "#C8C8C8"


@matplotlib.rc_context(SETTINGS)
def draw_windows(*paths: str | os.PathLike) -> None:
    """Draw a panel per stride, with a row per window.

    Args:
        paths: files to write.
    """
    figure = Figure(figsize=(9.2, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(STRIDES), sharey=True)
    for axes, (stride, title) in zip(panels, STRIDES.items(), strict=True):
        _draw_stride(axes, stride, title)
    panels[0].set_ylabel("Window")
    legend = [
        Patch(facecolor=_SCORED, label="scored"),
        Patch(facecolor=_CONTEXT, label="context only"),
    ]
    figure.legend(handles=legend, loc="outside lower center", ncols=2)
    save(figure, *paths)


def _draw_stride(axes: Axes, stride: int, title: str) -> None:
    """Draw the windows of a stride as rows of tokens."""
    axes.set_title(title)
    axes.grid(visible=False)
    for row, window in enumerate(plan_windows(TOKENS, LENGTH, stride)):
        for token in range(window.start, window.stop):
            color = _SCORED if token >= window.first_scored else _CONTEXT
            cell = Rectangle((token, row), 1, 1, facecolor=color, edgecolor="white", linewidth=1.5)
            axes.add_patch(cell)
    axes.set_xlim(0, TOKENS)
    axes.set_ylim(TOKENS, 0)
    axes.set_aspect("equal")
    axes.set_xticks(
        [token + 0.5 for token in range(TOKENS)], [str(token + 1) for token in range(TOKENS)]
    )
    axes.set_yticks([row + 0.5 for row in range(TOKENS)], [str(row + 1) for row in range(TOKENS)])
    axes.tick_params(length=0, labelsize=8)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("Token of the text")
