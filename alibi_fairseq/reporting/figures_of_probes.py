"""Heat maps of the accuracy of probes, by length and depth."""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from ..results.result import Result
from ..results.values import ProbeValues
from . import plots
from .axes import length_label
from .common_conditions import figure_conditions
from .probes import probed_models
from .row import Row, without_common_length


def draw_heat_maps(results: Sequence[Result], title: str, *paths: str | os.PathLike) -> None:
    """Draw one heat map per model of the accuracy by length and depth, averaged over seeds.

    Args:
        results: results of a probe.
        title: title of the figure.
        paths: files to write.
    """
    rows = [model.row for model in probed_models(results)]
    all_depths = sorted({probe_depth(result) for result in results})
    columns = min(len(rows), 2)
    values = results[0].values
    assert isinstance(values, ProbeValues)
    subtitle = f"{figure_conditions(rows)}; guessing finds {values.chance:.0%}"
    with matplotlib.rc_context({**plots.SETTINGS, "axes.grid": False}):
        size = (4.2 * columns + 0.8, 2.9 * math.ceil(len(rows) / columns))
        figure, used = plots.make_grid(len(rows), columns, size)
        for axes, row in zip(used, without_common_length(rows), strict=True):
            image = _draw_heat_map(axes, row, all_depths)
        figure.colorbar(image, ax=used, label="Accuracy (%)", shrink=0.9)
        plots.add_header(figure, title, subtitle)
        plots.save(figure, *paths)


def probe_depth(result: Result) -> float:
    """Return the depth of the repeated block of a probe's sequences."""
    assert result.case.depth is not None
    return result.case.depth


def _draw_heat_map(axes: Axes, row: Row, depths: Sequence[float]) -> AxesImage:
    """Draw the heat map of one model, with a row for each depth of any model."""
    lengths = sorted({point.case.length for point in row.points})
    grid = _accuracy_grid(row, depths, lengths)
    image = axes.imshow(grid, vmin=0, vmax=100, aspect="auto", cmap="viridis")
    for y, of_depth in enumerate(grid):
        for x, value in enumerate(of_depth):
            if math.isnan(value):  # not measured
                continue
            color = "black" if value > 60 else "white"
            axes.text(x, y, f"{value:.0f}", ha="center", va="center", color=color)
    axes.set_title(row.label)
    axes.set_xticks(range(len(lengths)), [length_label(n, row.train_length) for n in lengths])
    axes.set_yticks(range(len(depths)), [f"{depth:.0%}" for depth in depths])
    axes.set_xlabel("Length (tokens)")
    axes.set_ylabel("Depth of the repeated block")
    return image


def _accuracy_grid(row: Row, depths: Sequence[float], lengths: Sequence[int]) -> list[list[float]]:
    """Return the accuracy in percent by depth and length, averaged over seeds; NaN without any."""
    over_seeds: dict[tuple[float, int], list[float]] = defaultdict(list)
    for result in row.results:
        assert isinstance(result.values, ProbeValues)
        over_seeds[probe_depth(result), result.case.length].append(result.values.accuracy)
    grid = []
    for depth in depths:
        of_depth = []
        for length in lengths:
            accuracies = over_seeds.get((depth, length), [math.nan])
            of_depth.append(100 * statistics.fmean(accuracies))
        grid.append(of_depth)
    return grid
