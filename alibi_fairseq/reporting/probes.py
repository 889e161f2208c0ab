"""Accuracy of probes: a table by length, and heat maps of length by depth."""

from __future__ import annotations

import math
import os
import statistics
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Sequence

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.measurements import method_order, model_label

#: Accuracy at its training length from which a model counts as having learned a probe's task: one that
#: repeats the string's symbols in any order is far below, also where it is far above guessing.
MIN_LEARNED_ACCURACY = 0.5
#: A model: position method and training length.
Model = tuple[str, int]


def by_length(cells: Iterable[dict]) -> dict[Model, dict[float, list[float]]]:
    """Each seed's accuracy over all depths by model, in table order, and multiple of its length."""
    depths: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for cell in cells:
        of_model = depths[cell["position_method"], cell["train_length"]]
        of_model[cell["length"] / cell["train_length"]][cell.get("seed")].append(cell["accuracy"])
    return {
        model: {
            multiple: [statistics.fmean(values) for values in of_seed.values()]
            for multiple, of_seed in sorted(depths[model].items())
        }
        for model in sorted(depths, key=lambda model: (method_order(model[0]), model[1]))
    }


def label(model: Model, cells: Iterable[dict]) -> str:
    names = {cell["position_method"]: cell.get("display_name") for cell in cells}
    return model_label(*model, names[model[0]])


def shown(values: Sequence[float] | None) -> str:
    """The mean over seeds in percent, with the standard deviation where there are several."""
    if not values:
        return markdown.NOTHING
    spread = f" ± {100 * statistics.stdev(values):.0f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.0f} %{spread}"


def is_learned(cells: Iterable[dict]) -> bool:
    """Whether any model has learned the task."""
    accuracies = (statistics.fmean(at[1]) for at in by_length(cells).values() if 1 in at)
    return max(accuracies, default=1.0) >= MIN_LEARNED_ACCURACY


def probe_columns(name: str, cells: Sequence[dict]) -> dict:
    """Columns for a table of models: header -> model -> text; none where no model learned the task."""
    found = by_length(cells) if is_learned(cells) else {}
    return {
        f"{name} at {multiple} L": {model: shown(at.get(multiple)) for model, at in found.items()}
        for multiple in (1, 4)
        if found
    }


def accuracy_table(cells: Sequence[dict]) -> str:
    """Accuracy in Markdown, a row per model and a column per multiple of its training length L."""
    found = by_length(cells)
    multiples = sorted({multiple for at in found.values() for multiple in at})
    rows = [
        [label(model, cells), *(shown(at.get(m)) for m in multiples)] for model, at in found.items()
    ]
    table = markdown.table(["trained ↓ tested at →", *(f"{m:g} L" for m in multiples)], rows)
    size, chance = cells[0]["trials"], cells[0]["chance"]
    depths = len({cell["depth"] for cell in cells})
    text = (
        f"{table}\nSymbols repeated correctly, over {depths} depths of {size} sequences each; guessing: "
        f"{100 * chance:.0f} %.\n"
    )
    if not is_learned(cells):
        text += (
            f"\nNo model repeats {MIN_LEARNED_ACCURACY:.0%} of them at its training length: none has learned the task, "
            "so the table says nothing about position methods.\n"
        )
    return text


def draw_heat_maps(cells: Sequence[dict], title: str, *paths: str | os.PathLike) -> None:
    """One map per model of the accuracy by length and depth, seeds averaged."""
    models = list(by_length(cells))
    values: dict = defaultdict(list)
    for cell in cells:
        model = (cell["position_method"], cell["train_length"])
        values[model, cell["depth"], cell["length"]].append(cell["accuracy"])
    depths = sorted({cell["depth"] for cell in cells})
    wide = min(len(models), 3)
    high = math.ceil(len(models) / wide)
    with matplotlib.rc_context({**plots.SETTINGS, "axes.grid": False}):
        figure = Figure(figsize=(3.6 * wide + 0.8, 2.7 * high + 0.4), layout="constrained")
        FigureCanvasAgg(figure)
        places = list(figure.subplots(high, wide, squeeze=False).flat)
        for unused in places[len(models) :]:
            unused.remove()
        for axes, model in zip(places, models):
            lengths = sorted({length for one, _, length in values if one == model})
            grid = [
                [statistics.fmean(values.get((model, d, n), [math.nan])) for n in lengths]
                for d in depths
            ]
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
        figure.colorbar(image, ax=places[: len(models)], label="Accuracy", shrink=0.9)
        figure.suptitle(textwrap.fill(title, 36 * wide))
        plots.save(figure, *paths)
