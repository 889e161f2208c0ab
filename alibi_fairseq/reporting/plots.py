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
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ..files import atomic_write
from .axes import annotate, length_axis, perplexity_axis, share_y_range
from .line_labels import (
    LineEnd,
    label_exits,
    label_line_ends,
    lines_that_leave,
    note_training_length,
)
from .line_styles import LineStyle, variant_style

#: Titles of the axes of a panel of perplexity by length.
EVALUATION_LENGTH = "Evaluation length (tokens)"
PERPLEXITY = "Perplexity"

# Width and height of the axes of a panel in inches, by the number of columns.
_AXES_WIDTHS = (5.2, 3.6, 2.9)
_PANEL_HEIGHT = 4.0
# Labels at line ends: characters per line, and the largest number of lines in a panel. With more,
# the figure has a legend.
_LABEL_CHARACTERS = 24
_MAX_LABEL_ROWS = 16
# Width of a character of a label in inches.
_CHARACTER_WIDTH = 0.075
# Heights of a line of the title and of the subtitle in inches.
_TITLE_HEIGHT = 0.22
_SUBTITLE_HEIGHT = 0.165
# Space above the title and above the panels in inches.
_PADDING = 0.06
_LEGEND_ROWS = 18
# Characters per inch of titles of panels, and of the smaller text above and below the panels.
_TITLE_DENSITY = 11.5
_SMALL_DENSITY = 16.5
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
        label: label at the end of the line, or in the legend.
        x: x of each point.
        y: y of each point.
        style: style of the line.
        spread: half the height of a band around each point.
        hollow: True for the paper's numbers, which have hollow markers.
        notes: texts next to points, as pairs of the point's index and the text. That of the last
            point is part of the label at the end of the line.
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
        y_limits: ends of a linear y axis; lines that fail go beyond it (default: all values).
    """

    title: str
    lines: Sequence[PlotLine]
    x: str = EVALUATION_LENGTH
    y: str = PERPLEXITY
    over_length: bool = True
    trained_at: int | None = None
    y_limits: tuple[float, float] | None = None


@matplotlib.rc_context(SETTINGS)
def draw(
    title: str,
    panels: Sequence[Panel],
    *paths: str | os.PathLike,
    subtitle: str = "",
    caption: str = "",
    same_y: bool = False,
    columns: int = 2,
) -> None:
    """Write a figure of panels to paths; see :func:`compose` and :func:`save`.

    A PDF has neither title nor caption, because a paper sets them itself.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        paths: files to write.
        subtitle: what all lines have in common, below the title (default: none).
        caption: text below the panels (default: none).
        same_y: True to give all panels the same y axis.
        columns: largest number of panels next to each other.
    """
    for_papers = [path for path in paths if Path(path).suffix == ".pdf"]
    others = [path for path in paths if path not in for_papers]
    if others:
        save(compose(title, panels, subtitle, caption, same_y, columns), *others)
    if for_papers:
        save(compose("", panels, same_y=same_y, columns=columns), *for_papers)


def save(figure: Figure, *paths: str | os.PathLike) -> None:
    """Write a figure atomically, in the formats given by the suffixes, with reproducible bytes."""
    for path in paths:
        suffix = Path(path).suffix.lstrip(".")
        varying_keys = _VARYING_METADATA.get(suffix, ("Software",))
        metadata = dict.fromkeys(varying_keys)  # None removes an entry
        with atomic_write(path, "wb") as stream:
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)


@matplotlib.rc_context(SETTINGS)
def compose(
    title: str,
    panels: Sequence[Panel],
    subtitle: str = "",
    caption: str = "",
    same_y: bool = False,
    columns: int = 2,
) -> Figure:
    """Create a figure whose lines have labels at their ends, or a legend if too many lines.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        subtitle: what all lines have in common, below the title (default: none).
        caption: text below the panels (default: none).
        same_y: True to give all panels the same y axis.
        columns: largest number of panels next to each other.
    """
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    has_legend = any(_label_rows(panel) > _MAX_LABEL_ROWS for panel in panels)
    label_width = 0 if has_legend else _label_width(panels)
    panel_width = _AXES_WIDTHS[columns - 1] + label_width
    width = panel_width * columns
    height = _PANEL_HEIGHT * rows
    figure, used = make_grid(len(panels), columns, (width, height))
    values: list[float] = []
    for panel in panels:
        values += _values(panel)
    for axes, panel in zip(used, panels, strict=True):
        axes.set_title(textwrap.fill(panel.title, int(_TITLE_DENSITY * panel_width)))
        plot(axes, panel, values if same_y else _values(panel), has_legend)
    if same_y:
        share_y_range(used)
    if caption:
        text = textwrap.fill(caption, int(_SMALL_DENSITY * width))
        figure.supxlabel(text, x=0.01, horizontalalignment="left", fontsize=8)
    if has_legend:
        _add_legend(figure, used)
    add_header(figure, title, subtitle)
    figure.draw_without_rendering()  # computes the layout, and so the distances between line ends
    for axes, panel in zip(used, panels, strict=True):
        ends = _line_ends(panel)
        if has_legend:
            exits = [end._replace(label="") for end in lines_that_leave(axes, ends)]
            label_exits(axes, exits)
        else:
            label_line_ends(axes, ends)
        if panel.trained_at is not None:
            note_training_length(axes, panel.trained_at)
    return figure


def _label_rows(panel: Panel) -> int:
    """Return the number of lines of text of a panel's labels."""
    return sum(end.label.count("\n") + 1 for end in _line_ends(panel))


def _label_width(panels: Sequence[Panel]) -> float:
    """Return the width in inches of the widest label at the end of a line."""
    characters = 0
    for panel in panels:
        for end in _line_ends(panel):
            characters = max(characters, *(len(part) for part in end.label.split("\n")))
    return _CHARACTER_WIDTH * characters


def _values(panel: Panel) -> list[float]:
    """Return the y of all points of a panel."""
    values: list[float] = []
    for line in panel.lines:
        values += line.y
    return values


def _add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """Add one legend of the lines of all panels to the right, and widen the figure by it."""
    handle_by_label: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            handle_by_label.setdefault(label, handle)
    legend = figure.legend(
        handle_by_label.values(),
        [textwrap.fill(label, 44) for label in handle_by_label],
        loc="outside right center",
        ncols=math.ceil(len(handle_by_label) / _LEGEND_ROWS),
    )
    width, height = figure.get_size_inches()
    figure.set_size_inches(width + legend.get_window_extent().width / figure.dpi, height)


def add_header(figure: Figure, title: str, subtitle: str) -> None:
    """Write a title and a smaller subtitle at the top, and make the figure higher by them.

    Args:
        figure: figure with a constrained layout.
        title: title of the figure; empty for none.
        subtitle: text below the title; empty for none.
    """
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(subtitle, int(_SMALL_DENSITY * width))
    title_height = _PADDING + _TITLE_HEIGHT if title else 0
    total = height + title_height + _SUBTITLE_HEIGHT * len(lines) + _PADDING
    figure.set_size_inches(width, total)
    layout = figure.get_layout_engine()
    assert isinstance(layout, ConstrainedLayoutEngine), "make_grid sets it"
    layout.set(rect=(0, 0, 1, height / total))
    figure.text(0.01, 1 - _PADDING / total, title, va="top", fontsize=11)
    top = 1 - title_height / total
    below = "\n".join(lines)
    figure.text(0.01, top, below, va="top", fontsize=8, color="#444444", linespacing=1.3)


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
    """Return the labels of a panel's lines, each with the note on the line's last point."""
    ends = []
    for line, style in _styled_lines(panel):
        notes = [text for index, text in line.notes if _is_last(index, line)]
        label = textwrap.fill(", ".join([line.label, *notes]), _LABEL_CHARACTERS)
        x = list(line.x)
        if line.ranges:
            x[-1] = line.ranges[-1][1]
        ends.append(LineEnd(label, x, line.y, style.color))
    return ends


def _styled_lines(panel: Panel) -> list[tuple[PlotLine, LineStyle]]:
    """Return the lines that have points, each with its style in the panel.

    Lines of the same style, such as variants of one model, get other dashes and lighter colors.
    """
    styled = []
    uses: Counter = Counter()  # number of lines in each style
    for line in panel.lines:
        if line.x:
            key = (line.style, line.hollow)
            styled.append((line, variant_style(line.style, uses[key])))
            uses[key] += 1
    return styled


def _is_last(index: int, line: PlotLine) -> bool:
    """Return True for the index of the last point of a line."""
    return index % len(line.x) == len(line.x) - 1


def plot(axes: Axes, panel: Panel, values: Sequence[float], has_legend: bool) -> None:
    """Draw a panel's lines and set up its axes.

    Args:
        axes: empty axes of the panel.
        panel: the panel.
        values: y of the points of all panels that share the y axis.
        has_legend: True to draw the notes on last points, which are otherwise in the labels.
    """
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    for line, style in _styled_lines(panel):
        _plot_line(axes, line, style)
        for index, text in line.notes:
            if has_legend or not _is_last(index, line):
                annotate(axes, text, (line.x[index], line.y[index]), (6, 4), "left")
    _set_up_x(axes, panel)
    if panel.y_limits is None:
        perplexity_axis(axes, values)
    else:
        axes.set_ylim(panel.y_limits)
    if panel.trained_at is not None:
        axes.axvline(panel.trained_at, color="#333333", linewidth=0.8, zorder=1.9)


def _set_up_x(axes: Axes, panel: Panel) -> None:
    """Set up the x axis of a panel."""
    all_x: list[float] = []
    for line in panel.lines:
        all_x += line.x
    if not all_x:
        return
    if panel.over_length:
        axes.margins(x=0.04)
        length_axis(axes, min(all_x), max(all_x), panel.trained_at)
    else:
        axes.margins(x=0.06)
        if min(all_x) < max(all_x) / 4:
            axes.set_xlim(left=0)


def _plot_line(axes: Axes, line: PlotLine, style: LineStyle) -> None:
    """Draw a line with its bars and band in the style that it has in this panel."""
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


def _draw_bars(axes: Axes, line: PlotLine, style: LineStyle) -> None:
    """Draw the horizontal and vertical bars of a line's points, if it has any."""
    for y, (first, last) in zip(line.y, line.ranges):
        axes.hlines(y, first, last, color=style.color, linewidth=1.5, alpha=0.5)
    for x, y, error in zip(line.x, line.y, line.errors):
        if error is not None:
            axes.vlines(x, y - error, y + error, color=style.color, linewidth=1)
