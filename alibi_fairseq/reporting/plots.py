"""Figures as panels of lines. Drawing the same figure again gives the same bytes."""

from __future__ import annotations

import math
import os
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..files import atomic_write
from .axes import annotate, length_axis, perplexity_axis
from .line_labels import LineEnd, label_line_ends
from .line_styles import LineStyle, variant_style

#: Titles of the axes of a panel of perplexity by length.
EVALUATION_LENGTH = "Evaluation length (tokens)"
PERPLEXITY = "Perplexity"

# Width of a panel in inches, by the number of columns.
_PANEL_WIDTHS = (5.2, 4.6, 3.9)
# Additional width of a single panel whose lines have labels at their ends.
_LABEL_WIDTH = 1.2
_LEGEND_ROWS = 18
_CAPTION_CHARACTERS_PER_INCH = 18
# Metadata with the time or the version of matplotlib, by format. Other formats have "Software".
_VARYING_METADATA = {
    "svg": ("Date", "Creator"),
    "pdf": ("CreationDate", "Creator", "Producer"),
}
SETTINGS = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "figure.titlesize": 11,
    "font.family": "sans-serif",
    # The first is part of matplotlib, so the layout is the same on all machines. Readers of an SVG
    # may lack it; Verdana has the same widths.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 3.2,  # long enough to distinguish the line styles
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.hashsalt": "alibi_fairseq",
    "svg.fonttype": "none",  # text, which can be searched and read aloud
}


@dataclass(frozen=True)
class PlotLine:
    """A line of a panel.

    Attributes:
        label: label in the legend.
        x: x of each point.
        y: y of each point.
        style: style of the line.
        spread: half the height of a band around each point.
        hollow: True for the paper's numbers, which have hollow markers.
        notes: texts next to points, as pairs of the point's index and the text.
        ranges: first and last x that each point stands for, drawn as a horizontal bar.
        uncertain: True for each point that rests on little data; it has a hollow marker.
        errors: half the height of a vertical bar at each point, or None for a point without one.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: LineStyle
    spread: Sequence[float] = ()
    hollow: bool = False
    notes: Sequence[tuple[int, str]] = ()
    ranges: Sequence[tuple[float, float]] = ()
    uncertain: Sequence[bool] = ()
    errors: Sequence[float | None] = ()


@dataclass(frozen=True)
class Panel:
    """Lines on one pair of axes.

    Attributes:
        title: title of the panel.
        lines: the lines.
        x: title of the x axis.
        y: title of the y axis.
        over_length: True if the x values are lengths in tokens, on a logarithmic axis.
        trained_at: training length of all lines, marked by a vertical line.
        end_labels: True to label the lines at their ends, False for the legend of the figure.
        y_limits: ends of a linear y axis; lines that fail go beyond it (default: all values).
    """

    title: str
    lines: Sequence[PlotLine]
    x: str = EVALUATION_LENGTH
    y: str = PERPLEXITY
    over_length: bool = True
    trained_at: int | None = None
    end_labels: bool = False
    y_limits: tuple[float, float] | None = None


@matplotlib.rc_context(SETTINGS)
def draw(title: str, panels: Sequence[Panel], *paths: str | os.PathLike, caption: str = "") -> None:
    """Write a figure of panels to paths; see :func:`compose` and :func:`save`.

    A PDF has neither title nor caption, because a paper sets them itself.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        paths: files to write.
        caption: text below the panels (default: none).
    """
    for_papers = [path for path in paths if Path(path).suffix == ".pdf"]
    others = [path for path in paths if path not in for_papers]
    if others:
        save(compose(title, panels, caption), *others)
    if for_papers:
        save(compose("", panels), *for_papers)


def save(figure: Figure, *paths: str | os.PathLike) -> None:
    """Write a figure atomically, in the formats given by the suffixes, with reproducible bytes."""
    for path in paths:
        suffix = Path(path).suffix.lstrip(".")
        varying_keys = _VARYING_METADATA.get(suffix, ("Software",))
        metadata = dict.fromkeys(varying_keys)  # None removes an entry
        with atomic_write(path, "wb") as stream:
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)


@matplotlib.rc_context(SETTINGS)
def compose(title: str, panels: Sequence[Panel], caption: str = "") -> Figure:
    """Create a figure with up to three panels per row, one legend, and a caption below.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        caption: text below the panels (default: none).
    """
    columns = min(len(panels), len(_PANEL_WIDTHS))
    rows = math.ceil(len(panels) / columns)
    width = _PANEL_WIDTHS[columns - 1] * columns
    if columns == 1 and panels[0].end_labels:
        width += _LABEL_WIDTH
    height = 4.0 * rows
    figure, used = make_grid(len(panels), columns, (width, height))
    handle_by_label: dict[str, Any] = {}
    for axes, panel in zip(used, panels, strict=True):
        plot(axes, panel)
        if panel.end_labels:
            continue
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            handle_by_label.setdefault(label, handle)
    figure.suptitle(title, x=0.01, horizontalalignment="left")
    if caption:
        line_length = int(_CAPTION_CHARACTERS_PER_INCH * width)
        figure.supxlabel(textwrap.fill(caption, line_length), fontsize=8)
    if handle_by_label:
        legend = figure.legend(
            handle_by_label.values(),
            [textwrap.fill(label, 44) for label in handle_by_label],
            loc="outside right center",
            ncols=math.ceil(len(handle_by_label) / _LEGEND_ROWS),
        )
        # Widen the figure by the legend so that the panels keep their width.
        figure.set_size_inches(width + legend.get_window_extent().width / figure.dpi, height)
    figure.draw_without_rendering()  # computes the layout, and so the distances between line ends
    for axes, panel in zip(used, panels, strict=True):
        if panel.end_labels:
            label_line_ends(axes, _line_ends(panel))
    return figure


def make_grid(count: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes, row by row.

    Args:
        count: number of axes.
        columns: number of axes in each row.
        size: width and height of the figure in inches.
    """
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(math.ceil(count / columns), columns, squeeze=False).flat)
    for unused in grid[count:]:
        unused.remove()
    return figure, grid[:count]


def _line_ends(panel: Panel) -> list[LineEnd]:
    """Return the labels of a panel's lines."""
    ends = []
    for line in panel.lines:
        if line.x:
            ends.append(LineEnd(line.label, line.x, line.y, line.style.color))
    return ends


def plot(axes: Axes, panel: Panel) -> None:
    """Draw a panel's lines and set up its axes.

    Lines of the same style, such as variants of one model, get other dashes and lighter colors.

    Args:
        axes: empty axes of the panel.
        panel: the panel.
    """
    axes.set_title(textwrap.fill(panel.title, 48))
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    uses: Counter = Counter()  # number of lines drawn in each style
    for line in panel.lines:
        if not line.x:
            continue
        key = (line.style, line.hollow)
        _plot_line(axes, line, variant_style(line.style, uses[key]))
        uses[key] += 1
    all_x: list[float] = []
    for line in panel.lines:
        all_x += line.x
    if panel.over_length:
        axes.margins(x=0.04)
    elif panel.end_labels:
        axes.margins(x=0.02)
        axes.set_xlim(left=0)
    else:
        axes.margins(x=0.15)
    if panel.over_length and all_x:
        multiples_of = panel.trained_at if panel.end_labels else None
        length_axis(axes, min(all_x), max(all_x), multiples_of)
    if panel.y_limits is None:
        perplexity_axis(axes, [(line.x, line.y) for line in panel.lines])
    else:
        axes.set_ylim(panel.y_limits)
    if panel.trained_at is not None:
        if panel.end_labels:
            shortest = min(all_x, default=panel.trained_at)
            _mark_training_length(axes, panel.trained_at, is_named=panel.trained_at > shortest)
        else:
            _add_training_length(axes, panel.trained_at)


def _add_training_length(axes: Axes, length: int) -> None:
    """Draw a vertical line at the training length, with an entry in the legend."""
    axes.axvline(
        length,
        label="training length",
        color="#333333",
        linewidth=1.3,
        linestyle=(0, (4, 3)),
        zorder=1.9,  # above the grid, below the lines
    )


def _mark_training_length(axes: Axes, length: int, is_named: bool) -> None:
    """Draw a thin vertical line at the training length, and write next to it what it is."""
    axes.axvline(length, color="#333333", linewidth=0.8, zorder=1.9)
    if is_named:
        top = axes.get_ylim()[1]
        annotate(axes, "training length", (length, top), (-5, -8), "right")


def _plot_line(axes: Axes, line: PlotLine, style: LineStyle) -> None:
    """Draw a line with its bars, band, and notes in the style that it has in this panel."""
    marker_color = "white" if line.hollow else style.color
    # Dense markers would hide the line, unless each one says how sure its point is.
    marker_spacing = 0.03 if len(line.x) > 12 and not line.uncertain else 1
    axes.plot(
        line.x,
        line.y,
        label=line.label,
        color=style.color,
        marker=style.marker,
        linestyle=style.linestyle,
        linewidth=1.7,
        markersize=style.size,
        markerfacecolor=marker_color,
        markevery=marker_spacing,
    )
    _draw_bars(axes, line, style)
    for x, y, is_uncertain in zip(line.x, line.y, line.uncertain):
        if is_uncertain:
            axes.plot(x, y, style.marker, color=style.color, markersize=style.size, mfc="white")
    if any(line.spread):
        low = []
        high = []
        for y, spread in zip(line.y, line.spread, strict=True):
            low.append(y - spread)
            high.append(y + spread)
        axes.fill_between(line.x, low, high, color=style.color, alpha=0.2, linewidth=0, zorder=1)
    for index, text in line.notes:
        point = (line.x[index], line.y[index])
        annotate(axes, text, point, (6, 4), "left")


def _draw_bars(axes: Axes, line: PlotLine, style: LineStyle) -> None:
    """Draw the horizontal and vertical bars of a line's points, if it has any."""
    for y, (first, last) in zip(line.y, line.ranges):
        axes.hlines(y, first, last, color=style.color, linewidth=3, alpha=0.4)
    for x, y, error in zip(line.x, line.y, line.errors):
        if error is not None:
            axes.vlines(x, y - error, y + error, color=style.color, linewidth=1)
