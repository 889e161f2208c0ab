"""Labels at the ends of lines, in place of a legend."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

FONT_SIZE = 9
# Distance from the end of a line to its label, in points (1/72 inch).
_GAP = 7
# Height of a line of text, as a multiple of the font size.
_SPACING = 1.25
# Radius of the largest markers and the width of lines around them, in points.
_MARKER_RADIUS = 4


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
    leaving = lines_that_leave(axes, lines)
    _label_ends(axes, [line for line in lines if line not in leaving])
    label_exits(axes, leaving)


def lines_that_leave(axes: Axes, lines: Sequence[LineEnd]) -> list[LineEnd]:
    """Return the lines whose last point is above the axes."""
    top = axes.get_ylim()[1]
    return [line for line in lines if line.y[-1] > top]


def _label_ends(axes: Axes, lines: Sequence[LineEnd]) -> None:
    """Label lines to the right of their last points."""
    points_per_pixel = 72 / axes.figure.dpi
    ends = sorted(lines, key=lambda line: line.y[-1])
    heights = []
    sizes = []
    for line in ends:
        _, pixels = axes.transData.transform((line.x[-1], line.y[-1]))
        heights.append(pixels * points_per_pixel)
        sizes.append(_SPACING * FONT_SIZE * (line.label.count("\n") + 1))
    frame = axes.get_window_extent()
    limits = (frame.y0 * points_per_pixel, frame.y1 * points_per_pixel)
    for line, old, new in zip(ends, heights, move_apart(heights, sizes, limits)):
        axes.annotate(
            line.label,
            (line.x[-1], line.y[-1]),
            xytext=(_GAP, new - old),
            textcoords="offset points",
            va="center",
            color=line.color,
            fontsize=FONT_SIZE,
        )


def label_exits(axes: Axes, lines: Sequence[LineEnd]) -> None:
    """Label lines where they leave the axes: to the left, or to the right if that is taken.

    The label ends with the highest value of the line.
    """
    top = axes.transAxes.transform((0, 1))[1]
    label_bottom = top - 2 * _SPACING * FONT_SIZE * axes.figure.dpi / 72
    taken = axes.get_window_extent().x0  # pixel up to which the left side, lines, and labels reach
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
    highest = max(line.y)
    value = f"{highest:,.0f}" if highest < 1e6 else f"{highest:.1e}"
    return axes.annotate(
        f"{line.label}\n↑ to {value}".strip(),
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


def note_training_length(axes: Axes, length: int) -> None:
    """Write what the vertical line at the training length is, where no line or label is.

    Without such a place next to its ends, the note is left out.

    Args:
        axes: axes whose lines and labels are final.
        length: training length.
    """
    frame = axes.get_window_extent()
    taken = [text.get_window_extent() for text in axes.texts]
    for height, offset in ((1, -8), (0, 8)):
        for side, gap in (("right", -5), ("left", 5)):
            note = axes.annotate(
                "training length",
                (length, height),
                xycoords=axes.get_xaxis_transform(),
                xytext=(gap, offset),
                textcoords="offset points",
                ha=side,
                va="center",
                fontsize=FONT_SIZE - 1,
            )
            box = note.get_window_extent()
            is_inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            if is_inside and not box.count_overlaps(taken) and not _touches_line(axes, box):
                return
            note.remove()


def _touches_line(axes: Axes, box: Bbox) -> bool:
    """Return True if a line of the axes passes through a box of pixels."""
    padded = box.padded(_MARKER_RADIUS * axes.figure.dpi / 72)
    for line in axes.get_lines():
        is_vertical = str(line.get_label()).startswith("_")  # only the lines of models have names
        points = line.get_transform().transform_path(line.get_path())
        if not is_vertical and points.intersects_bbox(padded, filled=False):
            return True
    return False


def move_apart(
    heights: Sequence[float], sizes: Sequence[float], limits: tuple[float, float]
) -> list[float]:
    """Move labels apart until none overlap, with the least sum of squared moves.

    Args:
        heights: heights of the middles of labels, in ascending order.
        sizes: height of each label.
        limits: lowest bottom and highest top of a label. Only labels that don't fit exceed the top.
    """
    # Distance of each label from the first one if the labels touch. Without it, the heights must
    # only not decrease: pool adjacent violators.
    distances = [0.0]
    for size, next_size in itertools.pairwise(sizes):
        distances.append(distances[-1] + (size + next_size) / 2)
    pools: list[list[float]] = []
    for height, distance in zip(heights, distances):
        pools.append([height - distance])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    moved: list[float] = []
    for pool in pools:
        for _ in pool:
            lowest = limits[0] + sizes[0] / 2
            highest = limits[1] - sizes[-1] / 2 - distances[-1]
            first = max(lowest, min(highest, _mean(pool)))
            moved.append(first + distances[len(moved)])
    return moved


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
