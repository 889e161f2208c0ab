"""The paper's Figures 1, 4, 5, 6, 7, 8, 10 and 11 in kind, ours with filled markers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from matplotlib.axes import Axes

from alibi_fairseq.reporting import beside, paper, style
from alibi_fairseq.reporting.figures import Series, draw_panels, labelled_by_method
from alibi_fairseq.reporting.more_figures import draw_strides, training_line
from alibi_fairseq.results.points import Point, Run, method_name

Ours = dict[str, list[Point]]  # points in the paper's setting, by corpus


def _lines(item: str, ours: Ours, keep: Callable[[Point], bool] = lambda p: True) -> list[Series]:
    """The rows of a table or figure as lines: the paper's first, then ours."""
    printed, measured = [], []
    for row in beside.rows_beside(item, ours.get(paper.about(item)["corpus"], [])):
        points = [point for point in row.paper.values() if keep(point)]
        if not points:
            continue
        one = {point.train_length for point in points}
        train_length = one.pop() if len(one) == 1 else None
        model = (points[0].position_method, train_length)
        printed.append(Series(f"{row.label} (paper)", *model, points, hollow=True))
        for name, found in row.lines:
            if kept := [point for point in found.values() if keep(point)]:
                measured.append(Series(row.label + name.removeprefix("ours"), *model, kept))
    return printed + measured


def figure01(ours: Ours, *paths: os.PathLike) -> None:
    """Perplexity beyond the training length, all methods trained alike (Tables 2 and 3)."""
    panels = {
        "trained at L=512": labelled_by_method(_lines("table02", ours)),
        "trained at L=1024": labelled_by_method(_lines("table03", ours)),
    }
    draw_panels("WikiText-103, validation", panels, *paths)


def figure04(ours: Ours, *paths: os.PathLike) -> None:
    """ALiBi trained at each length, beside sinusoidal evaluated where it was trained (Table 5)."""
    lines = _lines("table05", ours, _methods("alibi", "sinusoidal"))
    draw_panels("WikiText-103, validation", {"non-overlapping": lines}, *paths)


def figure10(ours: Ours, *paths: os.PathLike) -> None:
    """The same on Toronto BookCorpus (Table 8)."""
    panels = {"non-overlapping": _lines("table08", ours)}
    draw_panels("Toronto BookCorpus, validation", panels, *paths)


def figure06(ours: Ours, *paths: os.PathLike) -> None:
    """1.3B parameters beyond the training length."""
    panels = {}
    for length in (512, 1024):
        lines = _lines("figure06", ours, lambda p, length=length: p.train_length == length)
        panels[f"trained at L={length}"] = labelled_by_method(lines)
    draw_panels("CC100+RoBERTa, 1.3B parameters, validation", panels, *paths)


def _methods(*methods: str) -> Callable[[Point], bool]:
    return lambda point: point.position_method in methods


def figure05(training: Iterable[dict], *paths: os.PathLike) -> None:
    """1.3B parameters: perplexity against training time, the paper's end points and our curves.

    Args:
        training: cells of validation losses of our runs in the paper's setting; drawn are those
            at the length of the panel.
    """
    training = list(training)
    titles = {"left": "evaluated at 1024", "right": "evaluated at 2048"}
    with style.figure("CC100+RoBERTa, 1.3B parameters, validation", 2) as (figure, panels):
        for axes, (panel, title) in zip(panels, titles.items(), strict=True):
            rows = [row for row in paper.rows("figure05") if row["panel"] == panel]
            _end_points(axes, rows)
            for row in rows:
                keys = ("position_method", "train_length", "length")
                own = [c for c in training if all(c.get(key) == row[key] for key in keys)]
                run = Run(row["position_method"], row["train_length"])
                training_line(axes, own, run.label, style.method_look(run.position_method))
            axes.set_title(title)
            axes.set_xlabel("Training time (GPU hours)")
            axes.set_ylabel("Perplexity (lower is better)")
            axes.margins(0.25)
        style.legend(figure, panels)
        for path in paths:
            style.save(figure, path)


def _end_points(axes: Axes, rows: list[dict]) -> None:
    highest = max(row["perplexity"] for row in rows)
    for row in rows:
        run = Run(row["position_method"], row["train_length"])
        look = style.method_look(run.position_method).line(hollow=True)
        at = (row["gpu_hours"], row["perplexity"])
        label = f"{run.label} (paper, end point)"
        axes.plot(*([x] for x in at), label=label, **look | {"linestyle": "none", "markersize": 8})
        above = 4 if row["perplexity"] == highest else -4
        style.annotate(axes, f"{row['perplexity']:.2f}", at, (9, above), "left")


def figure07(*paths: os.PathLike) -> None:
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
        for path in paths:
            style.save(figure, path)


def figure08(*paths: os.PathLike) -> None:
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
        for path in paths:
            style.save(figure, path)


def figure11(ours: Ours, *paths: os.PathLike) -> None:
    """Sliding windows with S=1 beside non-overlapping ones (Tables 13–15 beside 2, 3 and 5)."""
    sliding = [p for n in (13, 14, 15) for p in paper.points(f"table{n}")]
    whole = [p for p in paper.points("table05") if p.position_method == "alibi"]
    whole += [
        point
        for item in ("table02", "table03")
        for point in paper.points(item)
        if point.position_method in ("sinusoidal", "t5")
        if (point.length - point.train_length) % 100 == 0 and point.length <= 3072
    ]
    printed = [p for p in (*sliding, *whole) if p.train_length in (512, 1024)]
    cases = {(p.position_method, p.train_length, p.length, p.stride) for p in printed}
    measured = [
        p
        for p in ours.get("wikitext-103", [])
        if (p.position_method, p.train_length, p.length, p.stride) in cases and p.subset == "valid"
    ]
    draw_strides(measured, "WikiText-103, validation", *paths, printed=printed)
