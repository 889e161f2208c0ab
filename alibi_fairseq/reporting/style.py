"""How figures look: the same line for a method everywhere, legible without colour, same bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.points import METHOD_NAMES

# Okabe and Ito's colours, which stay apart for colour-blind readers; in print the markers and
# the line styles tell the methods apart.
_BLUE, _ORANGE, _GREEN, _RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
_PURPLE, _SKY, _BLACK, _BROWN = "#CC79A7", "#56B4E9", "#000000", "#8C510A"
_LINES: dict[str, tuple[str, str, str | tuple]] = {
    "alibi": (_BLUE, "o", "-"),
    "sinusoidal": (_RED, "s", "--"),
    "rotary": (_GREEN, "^", "-."),
    "t5": (_ORANGE, "D", ":"),
    "learned": (_PURPLE, "v", (0, (5, 1, 1, 1, 1, 1))),
    "none": (_BLACK, "x", (0, (1, 1))),
    "transformer_xl": (_SKY, "P", (0, (8, 2))),
}
#: ALiBi with other slopes: its colour.
_SLOPES: dict[str, tuple[str, str, str | tuple]] = {
    "alibi_trainable_slopes": (_BLUE, "p", (0, (5, 2))),
    "alibi_random_slopes": (_BLUE, "H", (0, (1, 2))),
    "alibi_given_slopes": (_BLUE, "8", (0, (7, 2, 1, 2, 1, 2))),
}
#: Methods later than xPos.
_LATER: dict[str, tuple[str, str, str | tuple]] = {
    "fox": (_BROWN, "p", "-"),
    "fire": (_ORANGE, "h", (0, (4, 2))),
    "cope": (_PURPLE, "<", (0, (2, 1))),
    "bam": (_SKY, ">", (0, (6, 1, 2, 1))),
}
_OTHERS: list[tuple[str, str, str | tuple]] = [
    (_BROWN, "*", (0, (3, 1, 1, 1))),
    (_BLUE, "<", (0, (6, 2, 1, 2))),
    (_RED, ">", (0, (2, 2))),
    (_GREEN, "h", (0, (4, 1, 1, 1, 1, 1))),
]
_MARKERS = "osD^vP<>*Xhd"
_PANEL_WIDTHS = (5.2, 4.6, 3.9)  # inches, by the number of panels
_LEGEND_ROWS = 18
_MOST_TIMES = 100
_HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo", "**")


@dataclass(frozen=True)
class Look:
    """Colour, marker and line style of one series."""

    color: str
    marker: str
    linestyle: str | tuple

    def line(self, hollow: bool = False) -> dict:
        """Keyword arguments of ``Axes.plot``; hollow markers are the paper's numbers."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.linestyle,
            "linewidth": 1.1 if hollow else 1.7,
            "markersize": 4.5 if hollow else 5,
            "markerfacecolor": "white" if hollow else self.color,
            "markeredgecolor": self.color,
        }

    def variant(self, place: int) -> Look:
        """The n-th of several lines that would look the same: another marker, a lighter shade."""
        if place == 0:
            return self
        others = [marker for marker in _MARKERS if marker != self.marker]
        return Look(_lighter(self.color, 0.4), others[(place - 1) % len(others)], self.linestyle)


def _lighter(color: str, share: float) -> str:
    channels = matplotlib.colors.to_rgb(color)
    return matplotlib.colors.to_hex([c + (1 - c) * share for c in channels])


def method_look(method: str) -> Look:
    """The line of a position method; methods from outside the package get one by their name."""
    if method in (given := _LINES | _SLOPES | _LATER):
        return Look(*given[method])
    known = list(METHOD_NAMES)
    place = known.index(method) if method in known else sum(method.encode())
    return Look(*_OTHERS[place % len(_OTHERS)])


def length_look(method: str, train_length: int, train_lengths: Sequence[int]) -> Look:
    """The line of one training length among several of one method: other marker, other shade."""
    look = method_look(method)
    place = sorted(train_lengths).index(train_length)
    longer = len(train_lengths) - 1 - place
    shade = 0.55 * longer / max(1, len(train_lengths) - 1)  # the shortest is the lightest
    return Look(_lighter(look.color, shade), _MARKERS[place % len(_MARKERS)], look.linestyle)


def numbered_look(place: int) -> Look:
    """The line of the n-th series where series are not methods."""
    lines = [*_LINES.values(), *_OTHERS]
    return Look(*lines[place % len(lines)])


def hatch(place: int) -> str:
    """The filling of the n-th kind of bar."""
    return _HATCHES[place % len(_HATCHES)]


@contextmanager
def figure(title: str, panels: int = 1) -> Iterator[tuple]:
    """A figure with so many panels, up to three side by side, as ``(figure, list of axes)``."""
    settings = {
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
        "hatch.linewidth": 0.6,
        "text.parse_math": False,  # a dollar sign in a name is a dollar sign
        "svg.hashsalt": "alibi_fairseq",
        "svg.fonttype": "path",
    }
    with matplotlib.rc_context(settings):
        columns = min(panels, len(_PANEL_WIDTHS))
        rows = -(-panels // columns)
        size = (_PANEL_WIDTHS[columns - 1] * columns, 4.0 * rows)
        drawn = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(drawn)
        axes = list(drawn.subplots(rows, columns, squeeze=False).flat)
        for unused in axes[panels:]:
            unused.remove()
        drawn.suptitle(title)
        yield drawn, axes[:panels]


def save(drawn: Figure, *paths: str | os.PathLike) -> None:
    """Write a figure in the formats of the suffixes: whole or not at all, the same bytes each time."""
    dates = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
    for path in paths:
        kind = Path(path).suffix.lstrip(".")
        buffer = io.BytesIO()
        metadata = dict.fromkeys(dates.get(kind, ("Software",)))
        drawn.savefig(buffer, format=kind, dpi=150, metadata=metadata)
        with atomic_write(path, "wb") as stream:
            stream.write(buffer.getvalue())


def legend(drawn: Figure, panels: Sequence[Axes]) -> None:
    """One legend to the right of all panels, each label once: it never covers a line.

    The figure grows by the legend's width, so that the panels keep theirs.
    """
    entries: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    columns = -(-len(entries) // _LEGEND_ROWS)
    added = drawn.legend(
        entries.values(), entries.keys(), loc="outside right center", ncols=columns
    )
    extent = added.get_window_extent()
    width, height = drawn.get_size_inches()
    drawn.set_size_inches(width + extent.width / drawn.dpi, height)


def mark_training_length(axes: Axes, length: int | None) -> None:
    """A dashed line where evaluation leaves the length of training, explained in the legend.

    A triangle on the axis marks it too, also where lines of data cover it.
    """
    if length is not None:
        axes.axvline(
            length,
            label="training length",
            zorder=0.5,
            color="#333333",
            linewidth=1.3,
            linestyle=(0, (4, 3)),
        )
        axes.plot(
            [length],
            [0],
            marker="^",
            markersize=7,
            color="#333333",
            transform=axes.get_xaxis_transform(),
            clip_on=False,
            zorder=3,
        )


def band(axes: Axes, x: Sequence, low: Sequence, high: Sequence, color: str) -> None:
    """The range around a line, e.g. one standard deviation between seeds."""
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0, zorder=1)


def annotate(axes: Axes, text: str, at: tuple, offset: tuple[int, int], side: str) -> None:
    """A small text beside a point, so many typographic points away from it."""
    axes.annotate(
        text, at, xytext=offset, ha=side, textcoords="offset points", fontsize=8, va="center"
    )


def sparse_markers(lengths: Sequence[int]) -> list[int]:
    """Which points of a line get a marker, so that a dense sweep stays a line."""
    marked = set(_readable(list(lengths), most=30, least_gap=1.06))
    return [place for place, length in enumerate(lengths) if length in marked]


def length_axis(axes: Axes, lengths: Sequence[int]) -> None:
    """A logarithmic axis of lengths in tokens, labelled at round measured lengths."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(_readable(sorted(set(lengths)))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.margins(x=0.04)
    axes.tick_params(axis="x", labelrotation=45 if max(lengths) >= 10000 else 0)
    axes.set_xlabel("Evaluation length (tokens)")


def _readable(lengths: list[int], most: int = 9, least_gap: float = 1.3) -> list[int]:
    """At most so many of the lengths, evenly apart on a logarithmic axis, with first and last."""
    gap = max(least_gap, (lengths[-1] / lengths[0]) ** (1 / (most - 1)))
    kept = [lengths[0]]
    for length in lengths[1:-1]:
        if length >= gap * kept[-1] and lengths[-1] >= gap * length:
            kept.append(length)
    return kept + [length for length in lengths[-1:] if length != kept[-1]]


def perplexity_axis(axes: Axes, values: Sequence[float]) -> float:
    """Perplexities: a linear axis, or a logarithmic one from a factor of 2.5 on.

    It ends at ``_MOST_TIMES`` the lowest value, so that an untrained or diverged model does not press
    all others together.

    Returns:
        The upper end of what is shown.
    """
    lowest = min(values)
    highest = max(value for value in values if value <= _MOST_TIMES * lowest)
    axes.set_ylabel("Perplexity (lower is better)")
    if max(values) <= 2.5 * lowest:
        return highest
    axes.set_yscale("log")
    axes.set_ylim(lowest / 1.12, highest * 1.12)
    axes.yaxis.set_major_locator(FixedLocator(_round_values(lowest / 1.12, highest * 1.12)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return highest * 1.12


def _round_values(lowest: float, highest: float) -> list[float]:
    """Round numbers in a range, at most about ten."""
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1,)):
        found = [
            step * 10.0**power
            for power in range(-2, 13)
            for step in steps
            if lowest <= step * 10.0**power <= highest
        ]
        if len(found) <= 9:
            return found
    return found
