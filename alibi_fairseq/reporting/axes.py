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
    """Write a text next to a point of a panel.

    Args:
        axes: axes of the panel.
        text: the text.
        at: x and y of the point in data coordinates.
        offset: distance of the text from the point, in points (1/72 inch).
        side: side of the text that is at this distance, ``left`` or ``right``.
    """
    axes.annotate(
        text, at, xytext=offset, ha=side, textcoords="offset points", fontsize=8, va="center"
    )


def length_label(tokens: float, multiples_of: int | None) -> str:
    """Return the label of a tick, such as 256 above 2 L.

    Args:
        tokens: length in tokens.
        multiples_of: training length L; None: only the tokens.
    """
    label = f"{tokens:,.0f}"
    if multiples_of is None:
        return label
    multiple = round(tokens / multiples_of)
    if multiple < 1 or multiple * multiples_of != tokens:
        return f"{label}\n"
    return f"{label}\nL" if multiple == 1 else f"{label}\n{multiple} L"


def length_axis(axes: Axes, first: float, last: float, multiples_of: int | None = None) -> None:
    """Set up a logarithmic axis of tokens with ticks at powers of two.

    Args:
        axes: axes of the panel.
        first: smallest length.
        last: largest length.
        multiples_of: training length L; its multiples are written below the tokens, such as "4 L"
            (default: tokens only).
    """
    axes.set_xscale("log", base=2)
    powers = LogLocator(2, numticks=10)
    if any(first <= tick <= last for tick in powers.tick_values(first, last)):
        axes.xaxis.set_major_locator(powers)
    else:
        axes.xaxis.set_major_locator(FixedLocator([first, last]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: length_label(value, multiples_of))
    )
    axes.tick_params(axis="x", labelrotation=45 if last >= 10000 and multiples_of is None else 0)


def perplexity_axis(axes: Axes, values: Sequence[float]) -> None:
    """Set up a linear axis, or a logarithmic one if the values span more than a factor of 2.5.

    The label of a logarithmic axis says so. It ends above the highest value that is at most
    ``_MAX_AXIS_RATIO`` times the lowest, so that an untrained or diverged model does not compress
    all other lines.

    Args:
        axes: axes of the panel, with its lines.
        values: values of all panels that share the range.
    """
    if not values:
        return
    lowest = min(values)
    # The highest value that is not beyond the end of a logarithmic axis.
    highest = max(value for value in values if value <= _MAX_AXIS_RATIO * lowest)
    if max(values) <= 2.5 * lowest:
        _widen_axis(axes, middle_value=(lowest + highest) / 2)
        return
    axes.set_yscale("log")
    axes.set_ylabel(f"{axes.get_ylabel()}, log scale")
    axes.set_ylim(lowest / 1.12, highest * 1.12)
    axes.yaxis.set_major_locator(LogLocator(10, subs=_TICKS, numticks=20))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def share_y_range(panels: Sequence[Axes]) -> None:
    """Give all panels the range that shows the values of each."""
    limits = [axes.get_ylim() for axes in panels]
    for axes in panels:
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _widen_axis(axes: Axes, middle_value: float) -> None:
    """Give the y axis at least the span ``_MIN_SPAN``, relative to its middle value."""
    low, high = axes.get_ylim()
    min_span = _MIN_SPAN * middle_value
    if high - low < min_span:
        middle = (low + high) / 2
        axes.set_ylim(middle - min_span / 2, middle + min_span / 2)
