"""Axes of lengths and of perplexities, and notes in figures."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

# Largest ratio of values on a perplexity axis. Higher values are beyond its end.
_MAX_AXIS_RATIO = 100
# Ticks of a logarithmic perplexity axis, per decade.
_TICKS = (1, 1.5, 2, 3, 5, 7)
# Smallest span of a linear perplexity axis, as a fraction of its middle. Less would magnify noise.
_MIN_SPAN = 0.2


def annotate(axes: Axes, text: str, at: tuple, offset: tuple[int, int], side: str) -> None:
    """Write a text at a point in data coordinates, offset in points."""
    axes.annotate(
        text, at, xytext=offset, ha=side, textcoords="offset points", fontsize=8, va="center"
    )


def length_axis(axes: Axes, first: float, last: float) -> None:
    """Set up a logarithmic axis of tokens with ticks at powers of two."""
    axes.set_xscale("log", base=2)
    powers = LogLocator(2, numticks=10)
    has_power = any(first <= tick <= last for tick in powers.tick_values(first, last))
    axes.xaxis.set_major_locator(powers if has_power else FixedLocator([first, last]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.tick_params(axis="x", labelrotation=45 if last >= 10000 else 0)


def perplexity_axis(axes: Axes, lines: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
    """Set up a linear axis, or a logarithmic one if the values span more than a factor of 2.5.

    A logarithmic axis ends above the highest value that is at most ``_MAX_AXIS_RATIO`` times the
    lowest, so that an untrained or diverged model does not compress all other lines. If a line goes
    beyond the end, its highest value is written there.

    Args:
        axes: axes of the panel.
        lines: x and y of each line.
    """
    values = [value for _, line_values in lines for value in line_values]
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
    axes.yaxis.set_major_locator(LogLocator(10, subs=_TICKS, numticks=20))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for x, y in lines:
        points = list(zip(y, x, strict=True))
        if not points:
            continue
        worst, worst_x = max(points)
        if worst > end:
            annotate(axes, f"{worst:.3g} ↑", (worst_x, end), (-4, -6), "right")


def _widen_axis(axes: Axes, middle_value: float) -> None:
    """Give the y axis at least the span ``_MIN_SPAN``."""
    low, high = axes.get_ylim()
    min_span = _MIN_SPAN * middle_value
    if high - low < min_span:
        middle = (low + high) / 2
        axes.set_ylim(middle - min_span / 2, middle + min_span / 2)
