"""Figures as panels of lines: the same look for a method everywhere, legible without colour, same bytes."""

from __future__ import annotations

import os
import textwrap
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
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
from alibi_fairseq.results.measurements import Measurement, Series, caption

# Okabe and Ito's colours, which stay apart for colour-blind readers, then darker ones; in print
# markers and line styles tell the methods apart.
_COLORS = {
    **{"alibi": "#0072B2", "sinusoidal": "#D55E00", "rotary": "#009E73", "t5": "#E69F00"},
    **{"learned": "#CC79A7", "none": "#000000", "transformer_xl": "#56B4E9", "kerple": "#8C510A"},
    **{"sandwich": "#762A83", "xpos": "#808000", "fire": "#7F7F7F", "fox": "#01665E"},
    **{"cope": "#B2182B", "bam": "#1B1464", "alibi_trainable_slopes": "#3F94C6"},
    **{"alibi_random_slopes": "#7FB8D8", "alibi_given_slopes": "#00486F"},
}
_MARKERS = "os^DvxP*<>hXdpH8+"
_DASHES: tuple[str | tuple, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
_PANEL_WIDTHS = (5.2, 4.6, 3.9)  # inches, by the number of panels
_LEGEND_ROWS = 18
_MOST_TIMES = 100
_ROUND = (1, 1.5, 2, 3, 5, 7)  # where a logarithmic axis of perplexities has its ticks
_LEAST_SPAN = 0.2  # of a perplexity axis, as a share of its middle: less would magnify noise
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
    "legend.handlelength": 3.2,  # long enough to tell the line styles apart
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.hashsalt": "alibi_fairseq",
    "svg.fonttype": "path",
}


@dataclass(frozen=True)
class LineStyle:
    """Colour, marker and line style of a line."""

    color: str
    marker: str
    linestyle: str | tuple


@dataclass(frozen=True)
class PlotLine:
    """A line of a panel.

    ``spread`` is half the height of a band around each point; ``hollow`` marks the paper's numbers;
    ``notes`` are texts beside points, by index.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    look: LineStyle
    spread: Sequence[float] = ()
    hollow: bool = False
    notes: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True)
class Panel:
    """Lines on one pair of axes.

    ``over_length``: the ``x`` are lengths in tokens, on a logarithmic axis. Unless the other axis is
    linear ``from_zero``, values choose whether it is logarithmic. ``trained_at`` is the one training
    length of all lines.
    """

    title: str
    lines: Sequence[PlotLine]
    x: str = "Evaluation length (tokens)"
    y: str = "Perplexity (lower is better)"
    over_length: bool = True
    from_zero: bool = False
    trained_at: int | None = None


def method_look(method: str, length: int | None = None, lengths: Sequence[int] = ()) -> LineStyle:
    """The look of a position method; methods from outside the package get one by their name.

    A training ``length`` is told apart from the other ``lengths``; the shortest is the lightest.
    """
    known = method in _COLORS
    place = list(_COLORS).index(method) if known else zlib.crc32(method.encode())
    color = _COLORS[method] if known else to_hex(hsv_to_rgb((place % 360 / 360, 0.9, 0.6)))
    dashes = _DASHES[place % len(_DASHES)]
    if length is not None and len(lengths) > 1:
        place = sorted(lengths).index(length)
        color = _lighter(color, 0.55 * (len(lengths) - 1 - place) / (len(lengths) - 1))
    return LineStyle(color, _MARKERS[place % len(_MARKERS)], dashes)


def _lighter(color: str, share: float) -> str:
    return to_hex([c + (1 - c) * share for c in to_rgb(color)])


def line_of(series: Series, lengths: Sequence[int] = ()) -> PlotLine:
    """A model's perplexity by length; a run that failed says so at the end.

    Where the text is shorter than the evaluation lengths, the line ends at its longest window.

    Args:
        lengths: training lengths of the method that are to be told apart.
    """
    known = [point for point in series.points if point.perplexity is not None]
    by_window: dict[int, Measurement] = {}
    for point in known:
        by_window.setdefault(min(point.length, point.longest_window or point.length), point)
    failed = [point.status for point in series.points if point.perplexity is None]
    return PlotLine(
        series.label,
        list(by_window),
        [point.perplexity or 0.0 for point in by_window.values()],
        method_look(series.position_method, series.train_length, lengths),
        [point.spread or 0.0 for point in by_window.values()],
        hollow=series.printed,
        notes=[(-1, failed[0])] if failed and known else [],
    )


def draw_panels(title: str, panels: dict[str, list[Series]], *paths: str | os.PathLike) -> None:
    """Panels of perplexity against length by their titles, with one legend.

    A method looks the same in every panel. Training lengths of one method are told apart unless
    each panel has only one.
    """
    everything = [line for lines in panels.values() for line in lines]
    lengths: dict[str, set[int]] = defaultdict(set)
    if any(len({line.train_length for line in lines}) > 1 for lines in panels.values()):
        for line in everything:
            if line.train_length is not None:
                lengths[line.position_method].add(line.train_length)
    drawn = []
    for name, lines in panels.items():
        shown = [line_of(line, sorted(lengths[line.position_method])) for line in lines]
        trained_at = {line.train_length for line in lines}
        one = trained_at.pop() if len(trained_at) == 1 else None
        drawn.append(Panel(name, shown, trained_at=one))
    text = caption(point for line in everything for point in line.points)
    draw(title, drawn, *paths, caption=text)


@matplotlib.rc_context(SETTINGS)
def draw(title: str, panels: Sequence[Panel], *paths: str | os.PathLike, caption: str = "") -> None:
    """Write a figure in the formats of the suffixes, see :func:`save`."""
    save(compose(title, panels, caption), *paths)


def save(figure: Figure, *paths: str | os.PathLike) -> None:
    """Write a figure: whole or not at all, the same bytes each time."""
    dates = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
    for path in paths:
        kind = Path(path).suffix.lstrip(".")
        metadata = dict.fromkeys(dates.get(kind, ("Software",)))
        with atomic_write(path, "wb") as stream:
            figure.savefig(stream, format=kind, dpi=150, metadata=metadata)


@matplotlib.rc_context(SETTINGS)
def compose(title: str, panels: Sequence[Panel], caption: str = "") -> Figure:
    """The figure: up to three panels side by side, one legend beside, and a caption below."""
    columns = min(len(panels), len(_PANEL_WIDTHS))
    rows = -(-len(panels) // columns)
    width, height = _PANEL_WIDTHS[columns - 1] * columns, 4.0 * rows
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for unused in axes[len(panels) :]:
        unused.remove()
    entries: dict[str, Any] = {}
    for place, panel in zip(axes, panels, strict=False):
        plot(place, panel)
        handles, labels = place.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True)) | entries
    figure.suptitle(title)
    if caption:
        figure.supxlabel(textwrap.fill(caption, int(18 * width)), fontsize=8)
    legend = figure.legend(
        entries.values(),
        entries.keys(),
        loc="outside right center",
        ncols=-(-len(entries) // _LEGEND_ROWS),
    )
    # The panels keep their width.
    figure.set_size_inches(width + legend.get_window_extent().width / figure.dpi, height)
    return figure


def plot(axes: Axes, panel: Panel) -> None:
    """Draw a panel's lines and set up its axes."""
    axes.set_title(textwrap.fill(panel.title, 48))
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    seen: Counter = Counter()
    for line in panel.lines:
        if not line.x:
            continue
        look = line.look
        if place := seen[line.look, line.hollow]:  # lines that would look the same
            others = _MARKERS.replace(look.marker, "")
            look = replace(
                look, color=_lighter(look.color, 0.4), marker=others[place % len(others)]
            )
        seen[line.look, line.hollow] += 1
        axes.plot(
            line.x,
            line.y,
            label=line.label,
            color=look.color,
            marker=look.marker,
            linestyle=look.linestyle,
            linewidth=1.1 if line.hollow else 1.7,
            markersize=5,
            markerfacecolor="white" if line.hollow else look.color,
            markevery=0.03 if len(line.x) > 12 else 1,  # a dense sweep stays a line
        )
        if any(line.spread):
            low = [y - gap for y, gap in zip(line.y, line.spread, strict=True)]
            high = [y + gap for y, gap in zip(line.y, line.spread, strict=True)]
            axes.fill_between(line.x, low, high, color=look.color, alpha=0.2, linewidth=0, zorder=1)
        for index, text in line.notes:
            _annotate(axes, text, (line.x[index], line.y[index]), (6, 4), "left")
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
    if panel.over_length and (lengths := [x for line in panel.lines for x in line.x]):
        _length_axis(axes, min(lengths), max(lengths))
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    else:
        _perplexity_axis(axes, panel.lines)


def _annotate(axes: Axes, text: str, at: tuple, offset: tuple[int, int], side: str) -> None:
    axes.annotate(
        text, at, xytext=offset, ha=side, textcoords="offset points", fontsize=8, va="center"
    )


def _length_axis(axes: Axes, first: float, last: float) -> None:
    """A logarithmic axis of tokens, labelled at powers of two."""
    axes.set_xscale("log", base=2)
    powers = LogLocator(2, numticks=10)
    inside = any(first <= tick <= last for tick in powers.tick_values(first, last))
    axes.xaxis.set_major_locator(powers if inside else FixedLocator([first, last]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.tick_params(axis="x", labelrotation=45 if last >= 10000 else 0)


def _perplexity_axis(axes: Axes, lines: Sequence[PlotLine]) -> None:
    """A linear axis, or a logarithmic one from a factor of 2.5 on.

    It ends at ``_MOST_TIMES`` the lowest value, so that an untrained or diverged model does not press
    all others together; the highest value of such a line is written there.
    """
    values = [value for line in lines for value in line.y]
    if not values:
        return
    lowest, highest = min(values), max(v for v in values if v <= _MOST_TIMES * min(values))
    if max(values) <= 2.5 * lowest:
        low, high = axes.get_ylim()
        least = _LEAST_SPAN * (lowest + highest) / 2
        if high - low < least:
            middle = (low + high) / 2
            axes.set_ylim(middle - least / 2, middle + least / 2)
        return
    low, high = lowest / 1.12, highest * 1.12
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(10, subs=_ROUND, numticks=20))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for line in lines:
        worst, at = max(zip(line.y, line.x, strict=True), default=(0.0, 0.0))
        if worst > high:
            _annotate(axes, f"{worst:.3g} ↑", (at, high), (-4, -6), "right")
