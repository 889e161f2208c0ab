"""Line of a position method in a figure of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..reporting import plots
from ..reporting.line_styles import method_style
from ..results.labels import method_name


def method_line(
    method: str, points: Sequence[tuple[float, float]], label: str = "", **options: Any
) -> plots.PlotLine:
    """Create a line in a method's style.

    Args:
        method: position method.
        points: x and y of each point.
        label: label in the legend (default: name of the method).
        options: other attributes of the line.
    """
    return plots.PlotLine(
        label=label or method_name(method),
        x=[x for x, _ in points],
        y=[y for _, y in points],
        style=method_style(method),
        **options,
    )
