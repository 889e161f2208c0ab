"""ALiBi's bias: the penalties of one head as a matrix, and how far each head looks."""

from __future__ import annotations

import os

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from alibi_fairseq.positions.alibi import alibi_slopes
from alibi_fairseq.reporting.axes import length_axis
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import SETTINGS, save

HEADS = 8
#: Queries and keys of the matrix.
TOKENS = 6
#: Largest distance of the curves.
DISTANCE = 2048
_COLOR = method_style("ALiBi").color
_SHADES = LinearSegmentedColormap.from_list("ALiBi", ["#A6CDE8", _COLOR, "#00263D"])


@matplotlib.rc_context(SETTINGS)
def draw_bias(*paths: str | os.PathLike) -> None:
    """Draw the two panels.

    Args:
        paths: files to write.
    """
    figure = Figure(figsize=(9.2, 3.7), layout="constrained")
    FigureCanvasAgg(figure)
    matrix, curves = figure.subplots(1, 2, width_ratios=(1, 1.6))
    _draw_matrix(matrix)
    _draw_curves(curves)
    save(figure, *paths)


def _draw_matrix(axes: Axes) -> None:
    """Draw the distance of each query and key, which the head's slope multiplies."""
    axes.set_title("Added to the scores of a head with slope m")
    axes.grid(visible=False)
    for query in range(TOKENS):
        for key in range(TOKENS):
            distance = query - key
            is_visible = distance >= 0
            shade = 0.12 * distance if is_visible else 0.0
            cell = Rectangle(
                (key, query),
                1,
                1,
                facecolor=_COLOR if is_visible else "white",
                alpha=0.12 + shade if is_visible else 1,
                edgecolor="white" if is_visible else "#dddddd",
                linewidth=1.5 if is_visible else 0.5,
            )
            axes.add_patch(cell)
            if is_visible:
                text = ("0", "−m")[distance] if distance < 2 else f"−{distance}m"
                axes.text(key + 0.5, query + 0.5, text, ha="center", va="center", fontsize=9)
    axes.set_xlim(0, TOKENS)
    axes.set_ylim(TOKENS, 0)
    axes.set_aspect("equal")
    centers = np.arange(TOKENS) + 0.5
    axes.set_xticks(centers, [str(position) for position in range(1, TOKENS + 1)])
    axes.set_yticks(centers, [str(position) for position in range(1, TOKENS + 1)])
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("Key position j")
    axes.set_ylabel("Query position i")


def _draw_curves(axes: Axes) -> None:
    """Draw the factor by which the bias of each head reduces a key's weight, by distance."""
    axes.set_title(f"How far {HEADS} heads look, by slope m")
    distance = np.geomspace(1, DISTANCE, 200)
    for head, slope in enumerate(alibi_slopes(HEADS).tolist()):
        color = _SHADES(head / (HEADS - 1))
        axes.plot(distance, np.exp(-slope * distance), color=color, linewidth=1.7)
        # Where half of the weight is left, the curves are furthest apart.
        axes.annotate(
            f"1/{1 / slope:.0f}",
            (np.log(2) / slope, 0.5),
            xytext=(0, 7 if head % 2 else -9),
            textcoords="offset points",
            ha="center",
            va="center",
            color="#222222",
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    length_axis(axes, 1, DISTANCE)
    axes.set_xlim(1, DISTANCE)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
    axes.set_xlabel("Distance from query to key (tokens)")
    axes.set_ylabel("Weight left by the bias")
