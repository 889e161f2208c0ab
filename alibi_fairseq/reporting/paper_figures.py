"""The paper's figures in kind: its points hollow, ours filled. ``FIGURES`` lists them."""

from __future__ import annotations

import os
from collections.abc import Callable

from matplotlib.axes import Axes

from alibi_fairseq.reporting import comparison, paper, style
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.perplexity_by_length import draw_panels, without_length
from alibi_fairseq.reporting.speed import draw_bars
from alibi_fairseq.reporting.training_curves import time_curve
from alibi_fairseq.results.points import Point, Series, method_name, model_label


def _lines(item: str, results: Results, keep: Callable[[Point], bool] = lambda p: True) -> list:
    """The rows of a table or figure as lines: the paper's first, then ours."""
    printed, measured = [], []
    ours = results.comparable.get(paper.about(item)["corpus"], [])
    for row in comparison.rows_beside(item, ours):
        points = [point for point in row.paper.values() if keep(point)]
        if not points:
            continue
        one = {point.train_length for point in points}
        model = (points[0].position_method, one.pop() if len(one) == 1 else None)
        printed.append(Series(*model, points, "paper", printed=True, title=row.label))
        for variant, found in row.ours.items():
            if kept := [point for point in found.values() if keep(point)]:
                measured.append(Series(*model, kept, variant, title=row.label))
    return printed + measured


def figure01(results: Results, *paths: os.PathLike) -> None:
    """Perplexity beyond the training length, all methods trained alike (Tables 2 and 3)."""
    panels = {
        "trained at L=512": without_length(_lines("table02", results)),
        "trained at L=1024": without_length(_lines("table03", results)),
    }
    draw_panels("WikiText-103, validation", panels, *paths)


def figure02(results: Results, *paths: os.PathLike) -> None:
    """Speed and memory of each method on one V100 (Table 1)."""
    rows = paper.rows("table01")
    columns = (
        ("train_words_per_second", 1000, "Training (thousand words per second)"),
        ("eval_words_per_second", 1000, "Evaluation (thousand words per second)"),
        ("train_memory_gb", 1, "Training memory (GB)"),
    )
    bars = [
        (axis, {(r["position_method"], r["train_length"]): r[key] / unit for r in rows})
        for key, unit, axis in columns
    ]
    draw_bars(bars, "The paper, one V100", *paths)


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
        lines = _lines("figure06", results, lambda p, length=length: p.train_length == length)
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
    """Training speed against training length on one V100."""
    rows = paper.rows("figure07")
    with style.figure("WikiText-103, one V100") as (figure, [axes]):
        for method in ("alibi", "sinusoidal"):
            own = [row for row in rows if row["position_method"] == method]
            axes.plot(
                [row["train_length"] for row in own],
                [row["train_words_per_second"] / 1000 for row in own],
                label=f"{method_name(method)} (paper)",
                **style.method_look(method).line(hollow=True),
            )
        style.length_axis(axes, [row["train_length"] for row in rows])
        axes.set_xlabel("Training length (tokens)")
        axes.set_ylabel("Training speed (thousand words per second)")
        axes.set_ylim(bottom=0)
        style.legend(figure, [axes])
        style.save(figure, *paths)


def figure08(results: Results, *paths: os.PathLike) -> None:
    """Perplexity at evaluation length 3072 against training speed: short training is cheap."""
    speed = {
        (row["position_method"], row["train_length"]): row["train_words_per_second"] / 1000
        for row in paper.rows("figure07")
    }
    with style.figure("WikiText-103, validation, one V100") as (figure, [axes]):
        for method in ("alibi", "sinusoidal"):
            own = [p for p in paper.points("figure08") if p.position_method == method]
            at = [(speed[method, point.train_length], point.perplexity) for point in own]
            axes.plot(
                *zip(*at, strict=True),
                label=f"{method_name(method)} (paper)",
                **style.method_look(method).line(hollow=True),
            )
            for point, place in zip(own, at, strict=True):
                style.annotate(axes, f"L={point.train_length}", place, (-6, 5), "right")
        axes.set_xlabel("Training speed (thousand words per second)")
        axes.set_ylabel("Perplexity at length 3072 (lower is better)")
        axes.margins(0.2)
        style.legend(figure, [axes])
        style.save(figure, *paths)


def figure11(results: Results, *paths: os.PathLike) -> None:
    """Beyond the training length with a sliding window, S=1 (Tables 13 and 15)."""
    lines = [*_lines("table15", results), *_lines("table13", results)]
    draw_panels("WikiText-103, validation", {"sliding window, S=1": lines}, *paths)


#: Item → the table it stands behind in the report, its caption, and what draws it into paths.
FIGURES: dict[str, tuple[str, str, Callable[..., None]]] = {
    "figure01": ("table04", "Figure 1 in kind: beyond the training length", figure01),
    "figure02": ("table01", "Figure 2 in kind: speed and memory in the paper", figure02),
    "figure04": ("table05", "Figure 4 in kind: ALiBi by training length", figure04),
    "figure05": (
        "table11",
        "Figure 5 in kind: 1.3B parameters by training time; the paper's end points",
        figure05,
    ),
    "figure06": (
        "table12",
        "Figure 6 in kind: 1.3B parameters beyond the training length",
        figure06,
    ),
    "figure07": ("table05", "Figure 7 in kind: training speed by training length", figure07),
    "figure08": (
        "table05",
        "Figure 8 in kind: quality at length 3072 by training speed",
        figure08,
    ),
    "figure09": ("table08", "Figure 9 in kind: ALiBi by training length on books", figure09),
    "figure11": (
        "table15",
        "Figure 11 in kind: beyond the training length with a sliding window, S=1",
        figure11,
    ),
}
