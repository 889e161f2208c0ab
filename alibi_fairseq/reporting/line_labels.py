"""Labels at the ends of lines, in place of a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.text import Annotation

FONT_SIZE = 9
# Distance from the end of a line to its label, in points (1/72 inch).
_GAP = 7
# Smallest distance of two labels, as a multiple of the font size.
_SPACING = 1.25


class LineEnd(NamedTuple):
    """Label of a line, and the points to label.

    Attributes:
        x: x of each point of the line, in ascending order.
        y: y of each point.
        color: color of the line.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: str


def label_line_ends(axes: Axes, lines: Sequence[LineEnd]) -> None:
    """Write the name of each line next to its end, or where it leaves the axes at the top.

    Labels keep the order of the ends and are moved apart so that none overlap.

    Args:
        axes: axes whose scales, limits, and layout are final.
        lines: the lines.
    """
    top = axes.get_ylim()[1]
    inside = []
    leaving = []
    for line in lines:
        if line.y[-1] > top:
            leaving.append(line)
        else:
            inside.append(line)
    _label_ends(axes, inside)
    _label_exits(axes, leaving)


def _label_ends(axes: Axes, lines: Sequence[LineEnd]) -> None:
    """Label lines to the right of their last points."""
    points_per_pixel = 72 / axes.figure.dpi
    ends = sorted(lines, key=lambda line: line.y[-1])
    heights = []
    for line in ends:
        _, pixels = axes.transData.transform((line.x[-1], line.y[-1]))
        heights.append(pixels * points_per_pixel)
    for line, old, new in zip(ends, heights, spread(heights, _SPACING * FONT_SIZE)):
        axes.annotate(
            line.label,
            (line.x[-1], line.y[-1]),
            xytext=(_GAP, new - old),
            textcoords="offset points",
            va="center",
            color=line.color,
            fontsize=FONT_SIZE,
        )


def _label_exits(axes: Axes, lines: Sequence[LineEnd]) -> None:
    """Label lines where they leave the axes: to the left, or to the right if that is taken."""
    top = axes.transAxes.transform((0, 1))[1]
    label_bottom = top - 2 * _SPACING * FONT_SIZE * axes.figure.dpi / 72
    taken = -math.inf  # pixel up to which lines and labels reach
    for line in sorted(lines, key=lambda line: _crossing(axes, line, top)):
        exit_pixel = _crossing(axes, line, top)
        label = _label_exit(axes, line, _crossing(axes, line, label_bottom), "right")
        if label.get_window_extent().x0 < taken:
            label.remove()
            label = _label_exit(axes, line, exit_pixel, "left")
        taken = max(exit_pixel, label.get_window_extent().x1)


def _label_exit(axes: Axes, line: LineEnd, pixel: float, side: str) -> Annotation:
    """Write the name and the highest value of a line at the top of the axes.

    Args:
        axes: the axes.
        line: a line that leaves the axes at the top.
        pixel: horizontal position of the line.
        side: side of the label that is next to this position, ``left`` or ``right``.
    """
    fraction, _ = axes.transAxes.inverted().transform((pixel, 0))
    offset = -_GAP if side == "right" else _GAP
    return axes.annotate(
        f"{line.label}\n↑ to {max(line.y):.0f}",
        (fraction, 1),
        xycoords="axes fraction",
        xytext=(offset, -2),
        textcoords="offset points",
        ha=side,
        va="top",
        color=line.color,
        fontsize=FONT_SIZE,
    )


def _crossing(axes: Axes, line: LineEnd, height: float) -> float:
    """Return the pixel at which a line, drawn straight between points, first exceeds a height."""
    points = axes.transData.transform(list(zip(line.x, line.y)))
    previous = points[0]
    for point in points:
        if point[1] > height:
            break
        previous = point
    rise = point[1] - previous[1]
    if rise == 0:
        return float(point[0])
    return float(previous[0] + (height - previous[1]) / rise * (point[0] - previous[0]))


def spread(heights: Sequence[float], distance: float) -> list[float]:
    """Move heights apart to at least a distance, with the least sum of squared moves.

    Args:
        heights: heights in ascending order.
        distance: smallest distance between two results.
    """
    # Without the distance that each needs from the first, the heights must only not decrease:
    # pool adjacent violators.
    pools: list[list[float]] = []
    for index, height in enumerate(heights):
        pools.append([height - index * distance])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    spread_heights: list[float] = []
    for pool in pools:
        for _ in pool:
            spread_heights.append(_mean(pool) + len(spread_heights) * distance)
    return spread_heights


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
