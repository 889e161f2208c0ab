"""Accuracy of probes: a table by length, and a figure by length and depth."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.points import method_order, model_label

#: Accuracy at its training length from which a model counts as having learned a probe's task: one that
#: repeats the string's symbols in any order is far below, also where it is far above guessing.
LEARNED = 0.5
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
    learned = max((statistics.fmean(at[1]) for at in found.values() if 1 in at), default=1.0)
    if learned < LEARNED:
        text += (
            f"\nNo model repeats {LEARNED:.0%} of them at its training length: none has learned the task, "
            "so the table says nothing about position methods.\n"
        )
    return text


def draw_accuracy(cells: Sequence[dict], title: str, *paths: str | os.PathLike) -> None:
    """Accuracy by length, seeds averaged: a panel per depth, a line per model."""
    panels = []
    for depth in sorted({cell["depth"] for cell in cells}):
        lines = []
        for model, at in by_length(c for c in cells if c["depth"] == depth).items():
            method, length = model
            look = plots.method_look(method, length, sorted({c["train_length"] for c in cells}))
            x = [multiple * length for multiple in at]
            y = [statistics.fmean(values) for values in at.values()]
            lines.append(plots.Line(label(model, cells), x, y, look))
        axes = ("Length (tokens)", "Accuracy")
        panels.append(plots.Panel(f"depth {depth:.0%}", lines, *axes, scale="from zero"))
    plots.draw(title, panels, *paths)
