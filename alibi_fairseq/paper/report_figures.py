"""The paper's figures redrawn with ours: the paper's points hollow, ours filled. ``FIGURES`` lists them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.report_data import Cases, ReportData
from alibi_fairseq.paper.report_tables import JOINED, printed_speeds, table_rows
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.perplexity_by_length import without_length
from alibi_fairseq.results.measurements import (
    METHOD_NAMES,
    Measurement,
    Series,
    group_by_model,
    method_name,
    method_order,
    model_label,
)

PAIR = ("alibi", "sinusoidal")
WIKITEXT, BOOKS = "WikiText-103, validation", "Toronto BookCorpus, validation"
LARGE = "CC100+RoBERTa, 1.3B parameters, validation"

Speeds = Mapping[tuple[str, int], float]  # by position method and training length


def by_length(
    title: str, panels: Mapping[str, str], results: ReportData, *paths: str | os.PathLike
) -> None:
    """Draw perplexity by length: each panel the rows of tables or figures, the paper's, then ours.

    A panel is of all methods where its title names one training length, otherwise of ALiBi and sinusoidal.
    """
    drawn = {}
    for panel, items in panels.items():
        lines: list[Series] = []
        for item in items.split():
            ours = results.comparable(paper.about(item)["corpus"])
            rows = table_rows(paper.points(item), ours, joined=item in JOINED)
            lines += [row.paper for row in rows] + [own for row in rows for own in row.ours]
        _, _, length = panel.partition("L=")
        if length:
            lines = [line for line in lines if line.train_length == int(length)]
            drawn[panel] = without_length(lines)
        else:
            drawn[panel] = [line for line in lines if line.position_method in PAIR]
    plots.draw_panels(title, drawn, *paths)


def _line(
    method: str, points: Iterable[tuple[float, float]], label: str = "", **more: Any
) -> plots.PlotLine:
    """A line of a method through points (x, y)."""
    x, y = zip(*pairs) if (pairs := list(points)) else ((), ())
    return plots.PlotLine(label or method_name(method), x, y, plots.method_look(method), **more)


def figure02(results: ReportData, *paths: str | os.PathLike) -> None:
    """Speed and memory of each method: the paper's on one V100 (Table 1), then ours by machine."""
    panels = speed_panels("the paper, one V100", printed_speeds(), "words")
    for machine, cases in results.speeds().items():
        panels += speed_panels(machine, cases, "tokens")
    plots.draw("Speed and memory", panels, *paths)


def speed_panels(machine: str, cases: Cases, unit: str) -> list[plots.Panel]:
    """Training speed, evaluation speed and memory against length, a line per method."""
    axes = {
        "train": f"training (thousand {unit} per second)",
        "evaluate": f"evaluation (thousand {unit} per second)",
        "memory": "training memory (GB)",
    }
    methods = sorted({method for method, _ in cases}, key=method_order)
    panels = []
    for key, axis in axes.items():
        lines = []
        for method in methods:
            at = [(n, of[key] / 1000) for (name, n), of in sorted(cases.items()) if name == method]
            lines.append(_line(method, at))
        panels.append(plots.Panel(machine, lines, "Length (tokens)", axis, from_zero=True))
    return panels


def figure05(results: ReportData, *paths: str | os.PathLike) -> None:
    """1.3B parameters: perplexity against training time, the paper's end points and our curves."""
    panels = []
    for side, title in (("left", "evaluated at 1024"), ("right", "evaluated at 2048")):
        lines = []
        for row in paper.rows("figure05"):
            if row["panel"] != side:
                continue
            method, value = row["position_method"], row["perplexity"]
            label, notes = model_label(method, row["train_length"]), [(0, f"{value:.2f}")]
            name = f"{label} (paper, end point)"
            end = _line(method, [(row["gpu_hours"], value)], name, hollow=True, notes=notes)
            lines.append(replace(end, look=replace(end.look, linestyle="none")))
            lines.append(_line(method, time_curve(results, row), label))
        panels.append(plots.Panel(title, lines, "Training time (GPU hours)", over_length=False))
    plots.draw(LARGE, panels, *paths)


def time_curve(results: ReportData, row: dict) -> list[tuple[float, float]]:
    """GPU hours and perplexity on the validation split of our run of a row of Figure 5, in order of time.

    The training's own validations where they were at the length of the row; at another length the
    evaluations of checkpoints that the run kept, at the hours of its validation after as many updates.
    """
    corpus = paper.about("figure05")["corpus"]
    model = (row["position_method"], row["train_length"])
    run = [
        cell
        for cell in results.trainings(corpus)
        if (cell["position_method"], cell["train_length"]) == model and "gpu_hours" in cell
    ]
    hours = {cell["updates"]: cell["gpu_hours"] for cell in run}
    found: dict = {
        point.updates: point.perplexity
        for point in results.points
        if (point.corpus, point.model) == (corpus, paper.model(corpus))
        and (point.position_method, point.train_length) == model
        and (point.length, point.stride, point.subset) == (row["length"], row["length"], "valid")
        and point.model_overrides is None
        and point.perplexity is not None
        and point.updates in hours
    }
    same_length = (cell for cell in run if cell.get("length") == row["length"])
    found |= {cell["updates"]: 2 ** cell["loss_bits"] for cell in same_length}
    return [(hours[updates], found[updates]) for updates in sorted(found)]


def _printed_speeds() -> Speeds:
    return {
        (row["position_method"], row["train_length"]): row["train_words_per_second"]
        for row in paper.rows("figure07")
    }


def figure07(results: ReportData, *paths: str | os.PathLike) -> None:
    """Training speed by training length, the paper's and ours by machine, and ALiBi's share of it."""
    machines = {"the paper, one V100 (words)": _printed_speeds()}
    for machine, cases in results.speeds().items():
        machines[f"{machine} (tokens)"] = {
            case: found["train"] for case, found in cases.items() if case[0] in PAIR
        }
    axes: dict[str, Any] = {"x": "Training length (tokens)", "from_zero": True}
    panels, ratios = [], []
    for (machine, found), look in zip(machines.items(), cycle(METHOD_NAMES)):
        printed, lines = machine.startswith("the paper"), []
        for method in PAIR:
            at = [(n, speed / 1000) for (name, n), speed in sorted(found.items()) if name == method]
            lines.append(_line(method, at, hollow=printed))
        y = "Training speed (thousands per second)"
        panels.append(plots.Panel(machine, lines, y=y, **axes))
        both = [n for name, n in sorted(found) if name == "alibi" and ("sinusoidal", n) in found]
        at = [(n, found["alibi", n] / found["sinusoidal", n]) for n in both]
        ratios.append(_line(look, at, f"ALiBi / sinusoidal, {machine}", hollow=printed))
    panels.append(plots.Panel("as a ratio to sinusoidal", ratios, y="ALiBi / sinusoidal", **axes))
    plots.draw("Training speed by training length", panels, *paths)


def figure08(results: ReportData, *paths: str | os.PathLike) -> None:
    """Perplexity at evaluation length 3072 against training speed: short training is cheap.

    Our speeds are those of the runs' own records, per GPU (or process).
    """
    cases = {(p.position_method, p.train_length) for p in paper.points("figure08")}
    recorded = {
        (cell["position_method"], cell["train_length"]): cell["tokens_per_second"]
        / cell.get("processes", 1)
        for cell in results.trainings("wikitext-103")
        if "tokens_per_second" in cell
    }
    ours = group_by_model(
        point
        for point in results.comparable("wikitext-103")
        if (point.position_method, point.train_length) in cases & recorded.keys()
        and (point.length, point.stride, point.subset) == (3072, 3072, "valid")
    )
    averaged = [point for model in ours for point in model.points]
    sides: dict[str, tuple[str, Speeds, Sequence[Measurement]]] = {
        "the paper, one V100": ("words", _printed_speeds(), paper.points("figure08")),
        "ours, per process": ("tokens", recorded, averaged),
    }
    panels = []
    for title, (unit, speeds, points) in sides.items():
        printed, lines = unit == "words", []
        for method in PAIR:
            own = [p for p in points if p.position_method == method and p.perplexity]
            at = [(speeds[method, p.train_length] / 1000, p.perplexity or 0.0) for p in own]
            notes = [(place, f"L={point.train_length}") for place, point in enumerate(own)]
            label = method_name(method) + (" (paper)" if printed else "")
            lines.append(_line(method, at, label, hollow=printed, notes=notes))
        axes = (f"Training speed (thousand {unit} per second)", "Perplexity at length 3072")
        panels.append(plots.Panel(title, lines, *axes, over_length=False))
    plots.draw(WIKITEXT, panels[: 2 if ours else 1], *paths)


Draw = Callable[..., None]  # of results and paths
#: Item → the table it follows in the report, its caption, and what draws it.
FIGURES: dict[str, tuple[str, str, Draw]] = {
    "figure01": (
        "table04",
        "Figure 1: perplexity beyond the training length",
        partial(
            by_length, WIKITEXT, {"trained at L=512": "table02", "trained at L=1024": "table03"}
        ),
    ),
    "figure02": ("table01", "Figure 2: speed and memory", figure02),
    "figure04": (
        "table05",
        "Figure 4: perplexity of ALiBi by training length",
        partial(by_length, WIKITEXT, {"non-overlapping": "table05"}),
    ),
    "figure05": (
        "table11",
        "Figure 5: perplexity of 1.3B parameters by training time; the paper's end points",
        figure05,
    ),
    "figure06": (
        "table12",
        "Figure 6: perplexity of 1.3B parameters beyond the training length",
        partial(
            by_length, LARGE, dict.fromkeys(("trained at L=512", "trained at L=1024"), "figure06")
        ),
    ),
    "figure07": ("table05", "Figure 7: training speed by training length", figure07),
    "figure08": ("table05", "Figure 8: quality at length 3072 by training speed", figure08),
    "figure09": (
        "table08",
        "Figure 9: perplexity of ALiBi by training length on books",
        partial(by_length, BOOKS, {"non-overlapping": "table08"}),
    ),
    "figure11": (
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        partial(by_length, WIKITEXT, {"sliding window, S=1": "table15 table13"}),
    ),
}
