"""Figures as panels of lines.

A position method looks the same in every figure, figures are legible without color, and a figure
drawn again has the same bytes.
"""

from __future__ import annotations

import os
import textwrap
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import hsv_to_rgb, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from alibi_fairseq.files import atomic_write
from alibi_fairseq.reporting.caption import caption
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.model_groups import Series

# Okabe and Ito's colors, which color-blind readers can distinguish, then darker ones. Markers and
# line styles distinguish the methods in print.
_COLORS = {
    "alibi": "#0072B2",
    "sinusoidal": "#D55E00",
    "rotary": "#009E73",
    "t5": "#E69F00",
    "learned": "#CC79A7",
    "none": "#000000",
    "transformer_xl": "#56B4E9",
    "kerple": "#8C510A",
    "sandwich": "#762A83",
    "xpos": "#808000",
    "fire": "#7F7F7F",
    "fox": "#01665E",
    "cope": "#B2182B",
    "bam": "#1B1464",
    "alibi_trainable_slopes": "#3F94C6",
    "alibi_random_slopes": "#7FB8D8",
    "alibi_given_slopes": "#00486F",
}
_MARKERS = "os^DvxP*<>hXdpH8+"
_DASHES: tuple[str | tuple, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
# Width of a panel in inches, by the number of columns.
_PANEL_WIDTHS = (5.2, 4.6, 3.9)
_LEGEND_ROWS = 18
# Largest ratio of a perplexity axis's end to the lowest value.
_MAX_AXIS_RATIO = 100
# Ticks of a logarithmic perplexity axis, per decade.
_ROUND = (1, 1.5, 2, 3, 5, 7)
# Smallest span of a linear perplexity axis, as a fraction of its middle. Less would magnify noise.
_MIN_SPAN = 0.2
SETTINGS = {
    "font.size": 10,
    "axes.titlesize": 10,
    "figure.titlesize": 11,
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
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
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class LineStyle:
    """Color, marker, and dash pattern of a line."""

    color: str
    marker: str
    linestyle: str | tuple


@dataclass(frozen=True)
class PlotLine:
    """A line of a panel.

    Attributes:
        spread: half the height of a band around each point.
        hollow: True for the paper's numbers, which have hollow markers.
        notes: texts next to points, as pairs of the point's index and the text.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: LineStyle
    spread: Sequence[float] = ()
    hollow: bool = False
    notes: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class Panel:
    """Lines on one pair of axes.

    Attributes:
        over_length: True if ``x`` are lengths in tokens, on a logarithmic axis.
        from_zero: True for a linear y axis from zero. Otherwise the values decide whether the axis
            is logarithmic.
        trained_at: training length of all lines, marked by a vertical line.
    """

    title: str
    lines: Sequence[PlotLine]
    x: str = "Evaluation length (tokens)"
    y: str = "Perplexity (lower is better)"
    over_length: bool = True
    from_zero: bool = False
    trained_at: int | None = None


def method_style(method: str, length: int | None = None, lengths: Sequence[int] = ()) -> LineStyle:
    """Return the style of a position method; an unknown method gets one derived from its name.

    Args:
        method: name of the position method.
        length: training length of the line.
        lengths: training lengths to distinguish; the shortest has the lightest color.
    """
    if method in _COLORS:
        index = list(_COLORS).index(method)
        color = _COLORS[method]
    else:
        index = zlib.crc32(method.encode())
        hue = index % 360 / 360
        color = to_hex(hsv_to_rgb((hue, 0.9, 0.6)))
    linestyle = _DASHES[index % len(_DASHES)]
    if length is not None and len(lengths) > 1:
        index = sorted(lengths).index(length)
        color = _lighter(color, 0.55 * (len(lengths) - 1 - index) / (len(lengths) - 1))
    return LineStyle(color, _MARKERS[index % len(_MARKERS)], linestyle)


def _lighter(color: str, fraction: float) -> str:
    """Mix a color with a fraction of white."""
    return to_hex([channel + (1 - channel) * fraction for channel in to_rgb(color)])


def line_of(series: Series, lengths: Sequence[int] = ()) -> PlotLine:
    """Create the line of a model's perplexity by evaluation length.

    A failed evaluation is noted at the end of the line. If the text is shorter than the evaluation
    lengths, the line ends at the longest window.

    Args:
        series: measurements of the model, by length.
        lengths: training lengths of the position method to distinguish.
    """
    by_window: dict[int, Measurement] = {}
    failures = []
    for point in series.points:
        if point.perplexity is None:
            failures.append(point.status)
            continue
        window = min(point.length, point.longest_window or point.length)
        by_window.setdefault(window, point)
    notes = [(-1, failures[0])] if failures and by_window else []
    return PlotLine(
        label=series.label,
        x=list(by_window),
        y=[point.perplexity or 0.0 for point in by_window.values()],
        style=method_style(series.position_method, series.train_length, lengths),
        spread=[point.spread or 0.0 for point in by_window.values()],
        hollow=series.printed,
        notes=notes,
    )


def draw_panels(
    title: str,
    panels: dict[str, list[Series]],
    *paths: str | os.PathLike,
    line_of: Callable[[Series, Sequence[int]], PlotLine] = line_of,
    x: str = Panel.x,
    y: str = Panel.y,
) -> None:
    """Draw panels of models, given by title, with one legend.

    A position method looks the same in every panel. Its training lengths have different styles
    unless each panel has only one training length.

    Args:
        title: title of the figure.
        panels: models by panel title.
        paths: files to write.
        line_of: function that creates the line of a model (default: perplexity by length).
        x: title of the x axis, whose unit is tokens.
        y: title of the y axis.
    """
    train_lengths = [{line.train_length for line in lines} for lines in panels.values()]
    lengths: dict[str, set[int]] = defaultdict(set)
    if any(len(in_panel) > 1 for in_panel in train_lengths):
        for lines in panels.values():
            for line in lines:
                if line.train_length is not None:
                    lengths[line.position_method].add(line.train_length)
    drawn = []
    for (name, lines), in_panel in zip(panels.items(), train_lengths, strict=True):
        plot_lines = [line_of(line, sorted(lengths[line.position_method])) for line in lines]
        trained_at = next(iter(in_panel)) if len(in_panel) == 1 else None
        drawn.append(Panel(name, plot_lines, x, y, trained_at=trained_at))
    points = [point for lines in panels.values() for line in lines for point in line.points]
    draw(title, drawn, *paths, caption=caption(points))


@matplotlib.rc_context(SETTINGS)
def draw(title: str, panels: Sequence[Panel], *paths: str | os.PathLike, caption: str = "") -> None:
    """Write a figure of panels to paths; see :func:`save`."""
    save(compose(title, panels, caption), *paths)


def save(figure: Figure, *paths: str | os.PathLike) -> None:
    """Write a figure atomically, in the formats given by the suffixes, with reproducible bytes."""
    dates = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
    for path in paths:
        suffix = Path(path).suffix.lstrip(".")
        metadata = dict.fromkeys(dates.get(suffix, ("Software",)))
        with atomic_write(path, "wb") as stream:
            figure.savefig(stream, format=suffix, dpi=150, metadata=metadata)


@matplotlib.rc_context(SETTINGS)
def compose(title: str, panels: Sequence[Panel], caption: str = "") -> Figure:
    """Create a figure with up to three panels per row, one legend, and a caption below."""
    columns = min(len(panels), len(_PANEL_WIDTHS))
    rows = -(-len(panels) // columns)
    width = _PANEL_WIDTHS[columns - 1] * columns
    height = 4.0 * rows
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in grid[len(panels) :]:
        unused.remove()
    handle_by_label: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        plot(axes, panel)
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            handle_by_label.setdefault(label, handle)
    figure.suptitle(title)
    if caption:
        figure.supxlabel(textwrap.fill(caption, int(18 * width)), fontsize=8)
    legend = figure.legend(
        handle_by_label.values(),
        handle_by_label.keys(),
        loc="outside right center",
        ncols=-(-len(handle_by_label) // _LEGEND_ROWS),
    )
    # Widen the figure by the legend so that the panels keep their width.
    figure.set_size_inches(width + legend.get_window_extent().width / figure.dpi, height)
    return figure


def plot(axes: Axes, panel: Panel) -> None:
    """Draw a panel's lines and set up its axes."""
    axes.set_title(textwrap.fill(panel.title, 48))
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    uses: Counter = Counter()
    for line in panel.lines:
        if not line.x:
            continue
        key = (line.style, line.hollow)
        _plot_line(axes, line, _variant(line.style, uses[key]))
        uses[key] += 1
    if panel.trained_at is not None:
        axes.axvline(
            panel.trained_at,
            label="training length",
            color="#333333",
            linewidth=1.3,
            linestyle=(0, (4, 3)),
            zorder=1.9,  # above the grid, below the lines
        )
    axes.margins(x=0.04 if panel.over_length else 0.15)
    lengths = [x for line in panel.lines for x in line.x]
    if panel.over_length and lengths:
        _length_axis(axes, min(lengths), max(lengths))
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    else:
        _perplexity_axis(axes, panel.lines)


def _variant(style: LineStyle, index: int) -> LineStyle:
    """Return a style for the line that uses ``style`` after ``index`` others in its panel."""
    if index == 0:
        return style
    markers = _MARKERS.replace(style.marker, "")
    return replace(style, color=_lighter(style.color, 0.4), marker=markers[index % len(markers)])


def _plot_line(axes: Axes, line: PlotLine, style: LineStyle) -> None:
    """Draw a line with its band and notes."""
    axes.plot(
        line.x,
        line.y,
        label=line.label,
        color=style.color,
        marker=style.marker,
        linestyle=style.linestyle,
        linewidth=1.1 if line.hollow else 1.7,
        markersize=5,
        markerfacecolor="white" if line.hollow else style.color,
        markevery=0.03 if len(line.x) > 12 else 1,  # dense markers would hide the line
    )
    if any(line.spread):
        low = [y - spread for y, spread in zip(line.y, line.spread, strict=True)]
        high = [y + spread for y, spread in zip(line.y, line.spread, strict=True)]
        axes.fill_between(line.x, low, high, color=style.color, alpha=0.2, linewidth=0, zorder=1)
    for index, text in line.notes:
        _annotate(axes, text, (line.x[index], line.y[index]), (6, 4), "left")


def _annotate(axes: Axes, text: str, at: tuple, offset: tuple[int, int], side: str) -> None:
    """Write a text at a point in data coordinates, offset in points."""
    axes.annotate(
        text, at, xytext=offset, ha=side, textcoords="offset points", fontsize=8, va="center"
    )


def _length_axis(axes: Axes, first: float, last: float) -> None:
    """Set up a logarithmic axis of tokens with ticks at powers of two."""
    axes.set_xscale("log", base=2)
    powers = LogLocator(2, numticks=10)
    has_power = any(first <= tick <= last for tick in powers.tick_values(first, last))
    axes.xaxis.set_major_locator(powers if has_power else FixedLocator([first, last]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.tick_params(axis="x", labelrotation=45 if last >= 10000 else 0)


def _perplexity_axis(axes: Axes, lines: Sequence[PlotLine]) -> None:
    """Set up a linear axis, or a logarithmic one if the values span more than a factor of 2.5.

    A logarithmic axis ends at ``_MAX_AXIS_RATIO`` times the lowest value, so that an untrained or
    diverged model does not compress all other lines. The highest value of a line beyond that end is
    written there.
    """
    values = [value for line in lines for value in line.y]
    if not values:
        return
    lowest = min(values)
    highest = max(value for value in values if value <= _MAX_AXIS_RATIO * lowest)
    if max(values) <= 2.5 * lowest:
        _widen_axis(axes, middle_value=(lowest + highest) / 2)
        return
    end = highest * 1.12
    axes.set_yscale("log")
    axes.set_ylim(lowest / 1.12, end)
    axes.yaxis.set_major_locator(LogLocator(10, subs=_ROUND, numticks=20))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for line in lines:
        worst, length = max(zip(line.y, line.x, strict=True), default=(0.0, 0.0))
        if worst > end:
            _annotate(axes, f"{worst:.3g} ↑", (length, end), (-4, -6), "right")


def _widen_axis(axes: Axes, middle_value: float) -> None:
    """Give the y axis at least the span ``_MIN_SPAN``."""
    low, high = axes.get_ylim()
    min_span = _MIN_SPAN * middle_value
    if high - low < min_span:
        middle = (low + high) / 2
        axes.set_ylim(middle - min_span / 2, middle + min_span / 2)
