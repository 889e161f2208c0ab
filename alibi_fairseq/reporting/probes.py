"""Accuracy of probes: a table by length, and heat maps of length by depth."""

from __future__ import annotations

import math
import os
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.measurements import method_order, model_label

#: Smallest accuracy at the training length of a model that has learned a probe's task. A model that
#: repeats the string's symbols in any order stays far below it, though far above guessing.
MIN_LEARNED_ACCURACY = 0.5
#: Multiples of the training length in tables of models.
COLUMN_MULTIPLES = (1, 4)
#: Position method and training length.
Model = tuple[str, int]


def by_length(cells: Iterable[dict]) -> dict[Model, dict[float, list[float]]]:
    """Return the accuracies of each model, in table order, by multiple of its training length.

    The list has one accuracy per seed, averaged over all depths.
    """
    depths: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for cell in cells:
        model = (cell["position_method"], cell["train_length"])
        multiple = cell["length"] / cell["train_length"]
        depths[model][multiple][cell.get("seed")].append(cell["accuracy"])
    accuracies: dict[Model, dict[float, list[float]]] = {}
    for model in sorted(depths, key=_model_order):
        accuracies[model] = {}
        for multiple, by_seed in sorted(depths[model].items()):
            accuracies[model][multiple] = [statistics.fmean(values) for values in by_seed.values()]
    return accuracies


def _model_order(model: Model) -> tuple[tuple[int, str], int]:
    """Return the sort key of a model in tables."""
    method, train_length = model
    return (method_order(method), train_length)


def label(model: Model, cells: Iterable[dict]) -> str:
    """Return the name of a model in tables, such as ``ALiBi, L=512``."""
    names = {cell["position_method"]: cell.get("display_name") for cell in cells}
    return model_label(*model, names[model[0]])


def shown(values: Sequence[float] | None) -> str:
    """Format the mean over seeds in percent, with the standard deviation of several seeds."""
    if not values:
        return markdown.NOTHING
    spread = f" ± {100 * statistics.stdev(values):.0f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.0f} %{spread}"


def is_learned(cells: Iterable[dict]) -> bool:
    """Return True if any model has learned the task, or none was tested at its training length."""
    accuracies = [
        statistics.fmean(by_multiple[1])
        for by_multiple in by_length(cells).values()
        if 1 in by_multiple
    ]
    return max(accuracies, default=1.0) >= MIN_LEARNED_ACCURACY


def probe_columns(name: str, cells: Sequence[dict]) -> dict[str, dict]:
    """Return columns for a table of models: header → model → text.

    There are no columns if no model has learned the task.
    """
    if not is_learned(cells):
        return {}
    accuracies = by_length(cells)
    if not accuracies:
        return {}
    columns = {}
    for multiple in COLUMN_MULTIPLES:
        columns[f"{name} at {multiple} L"] = {
            model: shown(by_multiple.get(multiple)) for model, by_multiple in accuracies.items()
        }
    return columns


def accuracy_table(cells: Sequence[dict]) -> str:
    """Format accuracies in Markdown, a row per model, a column per multiple of training length L."""
    accuracies = by_length(cells)
    multiples = sorted(
        {multiple for by_multiple in accuracies.values() for multiple in by_multiple}
    )
    rows = []
    for model, by_multiple in accuracies.items():
        values = [shown(by_multiple.get(multiple)) for multiple in multiples]
        rows.append([label(model, cells), *values])
    headers = [f"{multiple:g} L" for multiple in multiples]
    table = markdown.table(["trained ↓ tested at →", *headers], rows)
    sequences = cells[0]["trials"]
    chance = cells[0]["chance"]
    depths = len({cell["depth"] for cell in cells})
    text = (
        f"{table}\nSymbols repeated correctly, over {depths} depths of {sequences} sequences each; "
        f"guessing: {100 * chance:.0f} %.\n"
    )
    if not is_learned(cells):
        text += (
            f"\nNo model repeats {MIN_LEARNED_ACCURACY:.0%} of them at its training length: none has "
            "learned the task, so the table says nothing about position methods.\n"
        )
    return text


def draw_heat_maps(cells: Sequence[dict], title: str, *paths: str | os.PathLike) -> None:
    """Draw one heat map per model of the accuracy by length and depth, averaged over seeds."""
    models = list(by_length(cells))
    columns = min(len(models), 3)
    rows = math.ceil(len(models) / columns)
    with matplotlib.rc_context({**plots.SETTINGS, "axes.grid": False}):
        figure = Figure(figsize=(3.6 * columns + 0.8, 2.7 * rows + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for unused in panels[len(models) :]:
            unused.remove()
        used = panels[: len(models)]
        for axes, model in zip(used, models, strict=True):
            image = _draw_heat_map(axes, model, cells)
        figure.colorbar(image, ax=used, label="Accuracy", shrink=0.9)
        figure.suptitle(textwrap.fill(title, 36 * columns))
        plots.save(figure, *paths)


def _draw_heat_map(axes: Axes, model: Model, cells: Sequence[dict]) -> AxesImage:
    """Draw the heat map of one model; its rows are the depths of all models."""
    accuracies: dict[tuple[float, int], list[float]] = defaultdict(list)
    for cell in cells:
        if (cell["position_method"], cell["train_length"]) == model:
            accuracies[cell["depth"], cell["length"]].append(cell["accuracy"])
    depths = sorted({cell["depth"] for cell in cells})
    lengths = sorted({length for _, length in accuracies})
    grid = []
    for depth in depths:
        row = [statistics.fmean(accuracies.get((depth, n), [math.nan])) for n in lengths]
        grid.append(row)
    image = axes.imshow(grid, vmin=0, vmax=1, aspect="auto", cmap="viridis")
    for y, row in enumerate(grid):
        for x, value in enumerate(row):
            color = "black" if value > 0.6 else "white"
            axes.text(x, y, f"{100 * value:.0f}", ha="center", va="center", color=color)
    axes.set_title(label(model, cells))
    axes.set_xticks(range(len(lengths)), map(str, lengths))
    axes.set_yticks(range(len(depths)), [f"{depth:.0%}" for depth in depths])
    axes.set_xlabel("Length (tokens)")
    axes.set_ylabel("Depth of the string")
    return image
