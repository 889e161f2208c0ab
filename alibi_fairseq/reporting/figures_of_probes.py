"""Heat maps of the accuracy of probes, by length and depth."""

from __future__ import annotations

import math
import os
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from ..results.result import ProbeValues, Result
from . import plots
from .common_conditions import common_conditions
from .probes import ProbedModel, probed_models


def draw_heat_maps(results: Sequence[Result], title: str, *paths: str | os.PathLike) -> None:
    """Draw one heat map per model of the accuracy by length and depth, averaged over seeds.

    Args:
        results: results of a probe.
        title: title of the figure.
        paths: files to write.
    """
    models = probed_models(results)
    all_depths = sorted({probe_depth(result) for result in results})
    columns = min(len(models), 3)
    rows = math.ceil(len(models) / columns)
    with matplotlib.rc_context({**plots.SETTINGS, "axes.grid": False}):
        size = (3.6 * columns + 0.8, 2.7 * rows + 0.4)
        figure, used = plots.make_grid(len(models), columns, size)
        for axes, model in zip(used, models, strict=True):
            image = _draw_heat_map(axes, model, all_depths)
        figure.colorbar(image, ax=used, label="Accuracy", shrink=0.9)
        figure.suptitle(textwrap.fill(title, 36 * columns))
        below = textwrap.fill(common_conditions([model.row for model in models]), 60 * columns)
        figure.supxlabel(below, fontsize=8)
        plots.save(figure, *paths)


def probe_depth(result: Result) -> float:
    """Return the depth of the repeated block of a probe's sequences."""
    assert result.case.depth is not None
    return result.case.depth


def _draw_heat_map(axes: Axes, model: ProbedModel, depths: Sequence[float]) -> AxesImage:
    """Draw the heat map of one model, with a row for each depth of any model."""
    lengths = sorted({point.case.length for point in model.row.points})
    grid = _accuracy_grid(model, depths, lengths)
    image = axes.imshow(grid, vmin=0, vmax=1, aspect="auto", cmap="viridis")
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            color = "black" if value > 0.6 else "white"
            axes.text(x, y, f"{100 * value:.0f}", ha="center", va="center", color=color)
    axes.set_title(model.label)
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(depths)), [f"{depth:.0%}" for depth in depths])
    axes.set_xlabel("Length (tokens)")
    axes.set_ylabel("Depth of the repeated block")
    return image


def _accuracy_grid(
    model: ProbedModel, depths: Sequence[float], lengths: Sequence[int]
) -> list[list[float]]:
    """Return accuracies averaged over seeds by depth and length, NaN where the model has none."""
    over_seeds: dict[tuple[float, int], list[float]] = defaultdict(list)
    for result in model.row.results:
        assert isinstance(result.values, ProbeValues)
        over_seeds[probe_depth(result), result.case.length].append(result.values.accuracy)
    grid = []
    for depth in depths:
        row = []
        for length in lengths:
            accuracies = over_seeds.get((depth, length), [math.nan])
            row.append(statistics.fmean(accuracies))
        grid.append(row)
    return grid
