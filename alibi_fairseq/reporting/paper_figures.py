"""The paper's figures redrawn with ours: the paper's points hollow, ours filled. ``FIGURES`` lists them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import comparison, style
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.perplexity_by_length import draw_panels, without_length
from alibi_fairseq.reporting.speed import draw_bars, printed, speed_bars, speeds
from alibi_fairseq.reporting.training_curves import time_curve, training_speeds
from alibi_fairseq.results.points import Point, Series, method_name, model_label, series


def _lines(item: str, results: Results, keep: Callable[[Point], bool] = lambda p: True) -> list:
    """The rows of a table or figure as lines: the paper's first, then ours."""
    theirs, measured = [], []
    ours = results.comparable.get(paper.about(item)["corpus"], [])
    for row in comparison.rows_beside(item, ours):
        points = [point for point in row.paper.values() if keep(point)]
        if not points:
            continue
        one = {point.train_length for point in points}
        model = (points[0].position_method, one.pop() if len(one) == 1 else None)
        theirs.append(Series(*model, points, "paper", printed=True, title=row.label))
        for variant, found in row.ours.items():
            if kept := [point for point in found.values() if keep(point)]:
                measured.append(Series(*model, kept, variant, title=row.label))
    return theirs + measured


def figure01(results: Results, *paths: os.PathLike) -> None:
    """Perplexity beyond the training length, all methods trained alike (Tables 2 and 3)."""
    panels = {
        "trained at L=512": without_length(_lines("table02", results)),
        "trained at L=1024": without_length(_lines("table03", results)),
    }
    draw_panels("WikiText-103, validation", panels, *paths)


def figure02(results: Results, *paths: os.PathLike) -> None:
    """Speed and memory of each method: the paper's on one V100 (Table 1), then ours by machine."""
    axes = {
        "train": (1000, "training (thousand words per second)"),
        "evaluate": (1000, "evaluation (thousand words per second)"),
        "memory": (1, "training memory (GB)"),
    }
    bars = [
        (
            f"The paper, one V100:\n{axis}",
            {case: found[key] / unit for case, found in printed().items()},
        )
        for key, (unit, axis) in axes.items()
    ]
    for group in speeds(results.of_kind("benchmark")):
        bars += speed_bars(group)
    draw_bars(bars, "Speed and memory", *paths)


def figure04(results: Results, *paths: os.PathLike) -> None:
    """ALiBi trained at each length, beside sinusoidal evaluated where it was trained (Table 5)."""
    lines = _lines("table05", results, _methods("alibi", "sinusoidal"))
    draw_panels("WikiText-103, validation", {"non-overlapping": lines}, *paths)


def figure09(results: Results, *paths: os.PathLike) -> None:
    """The same on Toronto BookCorpus (Table 8)."""
    panels = {"non-overlapping": _lines("table08", results)}
    draw_panels("Toronto BookCorpus, validation", panels, *paths)


def figure06(results: Results, *paths: os.PathLike) -> None:
    """1.3B parameters beyond the training length."""
    panels = {}
    for length in (512, 1024):

        def trained_there(point: Point, length: int = length) -> bool:
            return point.train_length == length

        lines = _lines("figure06", results, trained_there)
        panels[f"trained at L={length}"] = without_length(lines)
    draw_panels("CC100+RoBERTa, 1.3B parameters, validation", panels, *paths)


def _methods(*methods: str) -> Callable[[Point], bool]:
    return lambda point: point.position_method in methods


def figure05(results: Results, *paths: os.PathLike) -> None:
    """1.3B parameters: perplexity against training time, the paper's end points and our curves."""
    titles = {"left": "evaluated at 1024", "right": "evaluated at 2048"}
    with style.figure("CC100+RoBERTa, 1.3B parameters, validation", 2) as (figure, panels):
        for axes, (panel, title) in zip(panels, titles.items(), strict=True):
            rows = [row for row in paper.rows("figure05") if row["panel"] == panel]
            _end_points(axes, rows)
            for row in rows:
                case = {key: row[key] for key in ("position_method", "train_length", "length")}
                if curve := time_curve(results, "cc100-roberta", case):
                    look = style.method_look(row["position_method"]).line()
                    label = model_label(row["position_method"], row["train_length"])
                    axes.plot(*zip(*curve, strict=True), label=label, **look)
            axes.set_title(title)
            axes.set_xlabel("Training time (GPU hours)")
            axes.set_ylabel("Perplexity (lower is better)")
            axes.margins(0.25)
        style.legend(figure, panels)
        style.save(figure, *paths)


def _end_points(axes: Axes, rows: list[dict]) -> None:
    highest = max(row["perplexity"] for row in rows)
    for row in rows:
        look = style.method_look(row["position_method"]).line(hollow=True)
        at = (row["gpu_hours"], row["perplexity"])
        label = model_label(row["position_method"], row["train_length"]) + " (paper, end point)"
        axes.plot(*([x] for x in at), label=label, **look | {"linestyle": "none", "markersize": 8})
        above = 4 if row["perplexity"] == highest else -4
        style.annotate(axes, f"{row['perplexity']:.2f}", at, (9, above), "left")


def figure07(results: Results, *paths: os.PathLike) -> None:
    """Training speed by training length, the paper's and ours by machine, and ALiBi's share of it."""
    methods = ("alibi", "sinusoidal")
    paper_speeds = {
        (row["position_method"], row["train_length"]): row["train_words_per_second"]
        for row in paper.rows("figure07")
    }
    machines = {"the paper, one V100 (words)": paper_speeds}
    for group in speeds(results.of_kind("benchmark")):
        machines[f"{group.machine} (tokens)"] = {
            (method, length): found["train"]
            for (method, length, _), found in group.cases.items()
            if method in methods and "train" in found
        }
    with style.figure("Training speed by training length", len(machines) + 1) as (figure, panels):
        *absolute, relative = panels
        for place, (axes, (machine, found)) in enumerate(
            zip(absolute, machines.items(), strict=True)
        ):
            for method in methods:
                own = sorted((length, v) for (name, length), v in found.items() if name == method)
                if own:
                    lengths, values = zip(*own, strict=True)
                    look = style.method_look(method).line(hollow=place == 0)
                    thousands = [value / 1000 for value in values]
                    axes.plot(lengths, thousands, label=method_name(method), **look)
            axes.set_title(machine)
            axes.set_ylabel("Training speed (thousands per second)")
            both = sorted(n for name, n in found if name == "alibi" and ("sinusoidal", n) in found)
            ratios = [found["alibi", n] / found["sinusoidal", n] for n in both]
            look = style.numbered_look(place).line(hollow=place == 0)
            relative.plot(both, ratios, label=f"ALiBi / sinusoidal, {machine}", **look)
        relative.set_title("as a ratio to sinusoidal")
        relative.set_ylabel("ALiBi / sinusoidal")
        relative.axhline(1.0, color="#777777", linewidth=0.8)
        everything = sorted({length for found in machines.values() for _, length in found})
        for axes in panels:
            style.length_axis(axes, everything)
            axes.set_xlabel("Training length (tokens)")
            axes.set_ylim(bottom=0)
        style.legend(figure, panels)
        style.save(figure, *paths)


def figure08(results: Results, *paths: os.PathLike) -> None:
    """Perplexity at evaluation length 3072 against training speed: short training is cheap.

    Our speeds are those of the runs' own records, per GPU (or process).
    """
    words = {
        (row["position_method"], row["train_length"]): row["train_words_per_second"] / 1000
        for row in paper.rows("figure07")
    }
    panels: dict[str, tuple[dict, Sequence[Point], str]] = {
        "the paper, one V100": (words, paper.points("figure08"), "words")
    }
    cases = {(p.position_method, p.train_length) for p in paper.points("figure08")}
    ours = [
        point
        for point in results.comparable.get("wikitext-103", [])
        if (point.position_method, point.train_length) in cases
        and (point.length, point.stride, point.subset) == (3072, 3072, "valid")
    ]
    measured = training_speeds(results, "wikitext-103")
    averaged = [point for model in series(ours) for point in model.points]
    known = [p for p in averaged if (p.position_method, p.train_length) in measured]
    if known:
        thousands = {case: speed / 1000 for case, speed in measured.items()}
        panels["ours, per process"] = (thousands, known, "tokens")
    with style.figure("WikiText-103, validation", len(panels)) as (figure, drawn):
        for axes, (title, (speed, points, unit)) in zip(drawn, panels.items(), strict=True):
            for method in ("alibi", "sinusoidal"):
                own = [p for p in points if p.position_method == method]
                at = [(speed[method, point.train_length], point.perplexity) for point in own]
                if at:
                    look = style.method_look(method).line(hollow=unit == "words")
                    label = method_name(method) + (" (paper)" if unit == "words" else "")
                    axes.plot(*zip(*at, strict=True), label=label, **look)
                for point, place in zip(own, at, strict=True):
                    style.annotate(axes, f"L={point.train_length}", place, (-6, 5), "right")
            axes.set_title(title)
            axes.set_xlabel(f"Training speed (thousand {unit} per second)")
            axes.set_ylabel("Perplexity at length 3072 (lower is better)")
            axes.margins(0.2)
        style.legend(figure, drawn)
        style.save(figure, *paths)


def figure11(results: Results, *paths: os.PathLike) -> None:
    """Beyond the training length with a sliding window, S=1 (Tables 13 and 15)."""
    lines = [*_lines("table15", results), *_lines("table13", results)]
    draw_panels("WikiText-103, validation", {"sliding window, S=1": lines}, *paths)


#: Item → the table it follows in the report, its caption, and what draws it into paths.
FIGURES: dict[str, tuple[str, str, Callable[..., None]]] = {
    "figure01": ("table04", "Figure 1: perplexity beyond the training length", figure01),
    "figure02": ("table01", "Figure 2: speed and memory", figure02),
    "figure04": ("table05", "Figure 4: perplexity of ALiBi by training length", figure04),
    "figure05": (
        "table11",
        "Figure 5: perplexity of 1.3B parameters by training time; the paper's end points",
        figure05,
    ),
    "figure06": (
        "table12",
        "Figure 6: perplexity of 1.3B parameters beyond the training length",
        figure06,
    ),
    "figure07": ("table05", "Figure 7: training speed by training length", figure07),
    "figure08": (
        "table05",
        "Figure 8: quality at length 3072 by training speed",
        figure08,
    ),
    "figure09": ("table08", "Figure 9: perplexity of ALiBi by training length on books", figure09),
    "figure11": (
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        figure11,
    ),
}
