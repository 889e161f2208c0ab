"""The paper's Figures 1, 4, 5, 6, 7, 8, 10 and 11 in kind, ours with filled markers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from alibi_fairseq.reporting import beside, paper, style
from alibi_fairseq.reporting.figures import Series, draw_panels
from alibi_fairseq.reporting.more_figures import draw_strides, training_line
from alibi_fairseq.reporting.points import Point, Run, method_name

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
        name = (row.label, points[0].position_method, train_length)
        own = [s for s in row.lines if s[1]]
        label = f"{row.label} (paper)" if own else row.label
        printed.append(Series(label, *name[1:], points, hollow=True))
        for variant, found in own:
            kept = [point for point in found.values() if keep(point)]
            measured.append(Series(row.label + variant.removeprefix("ours"), *name[1:], kept))
    return printed + measured


def figure01(ours: Ours, *paths: os.PathLike) -> None:
    """Perplexity beyond the training length, all methods trained alike (Tables 2 and 3)."""
    draw_panels(
        {
            "WikiText-103, trained at L=512": _by_method(_lines("table02", ours)),
            "WikiText-103, trained at L=1024": _by_method(_lines("table03", ours)),
        },
        *paths,
    )


def _by_method(lines: list[Series]) -> list[Series]:
    """The lines of a panel whose title says the training length: labelled without it."""
    return [
        replace(line, label=line.label.replace(f", L={line.train_length}", "")) for line in lines
    ]


def figure04(ours: Ours, *paths: os.PathLike) -> None:
    """ALiBi trained at each length, beside sinusoidal evaluated where it was trained (Table 5)."""
    keep = _methods("alibi", "sinusoidal")
    draw_panels({"WikiText-103, validation": _lines("table05", ours, keep)}, *paths)


def figure10(ours: Ours, *paths: os.PathLike) -> None:
    """The same on Toronto BookCorpus (Table 8)."""
    draw_panels({"Toronto BookCorpus, validation": _lines("table08", ours)}, *paths)


def figure06(ours: Ours, *paths: os.PathLike) -> None:
    """1.3B parameters beyond the training length."""
    panels = {
        f"CC100+RoBERTa, 1.3B, trained at L={length}": _by_method(
            _lines("figure06", ours, lambda p, length=length: p.train_length == length)
        )
        for length in (512, 1024)
    }
    draw_panels(panels, *paths)


def _methods(*methods: str) -> Callable[[Point], bool]:
    return lambda point: point.position_method in methods


def figure05(training: Iterable[dict], *paths: os.PathLike) -> None:
    """1.3B parameters: perplexity against training time, the paper's end points and our curves.

    Args:
        training: cells of validation losses of our runs in the paper's setting.
    """
    training = list(training)
    titles = {"left": "Evaluated at 1024", "right": "Evaluated at 2048"}
    with style.figure(len(titles)) as (figure, panels):
        for axes, (panel, title) in zip(panels, titles.items(), strict=True):
            for row in (row for row in paper.rows("figure05") if row["panel"] == panel):
                run = Run(row["position_method"], row["train_length"])
                look = style.method_look(run.position_method).line(hollow=True)
                axes.plot(
                    [row["gpu_hours"]],
                    [row["perplexity"]],
                    label=f"{run.label} (paper, end point)",
                    **look | {"linestyle": "none", "markersize": 8},
                )
                axes.annotate(
                    f"{row['perplexity']:.2f}",
                    (row["gpu_hours"], row["perplexity"]),
                    xytext=(10, 0),
                    textcoords="offset points",
                    va="center",
                )
                own = [
                    cell
                    for cell in training
                    if (cell["position_method"], cell["train_length"])
                    == (run.position_method, run.train_length)
                ]
                training_line(axes, own, run.label, style.method_look(run.position_method))
            axes.set_title(f"CC100+RoBERTa, 1.3B: {title.lower()}")
            axes.set_xlabel("Training time (GPU hours)")
            axes.set_ylabel("Perplexity (lower is better)")
            axes.margins(0.25)
        style.legend(figure, panels)
        for path in paths:
            style.save(figure, path)


def figure07(*paths: os.PathLike) -> None:
    """Training speed against training length on one V100."""
    rows = paper.rows("figure07")
    with style.figure() as (figure, [axes]):
        for method in ("alibi", "sinusoidal"):
            own = [row for row in rows if row["position_method"] == method]
            axes.plot(
                [row["train_length"] for row in own],
                [row["train_words_per_second"] / 1000 for row in own],
                label=method_name(method),
                **style.method_look(method).line(hollow=True),
            )
        style.length_axis(axes, [row["train_length"] for row in rows])
        axes.set_xlabel("Training length (tokens)")
        axes.set_ylabel("Training speed (thousand words per second)")
        axes.set_ylim(bottom=0)
        axes.set_title("WikiText-103, one V100")
        style.legend(figure, [axes])
        for path in paths:
            style.save(figure, path)


def figure08(*paths: os.PathLike) -> None:
    """Perplexity at evaluation length 3072 against training speed: short training is cheap."""
    speed = {
        (row["position_method"], row["train_length"]): row["train_words_per_second"] / 1000
        for row in paper.rows("figure07")
    }
    with style.figure() as (figure, [axes]):
        for method in ("alibi", "sinusoidal"):
            own = [p for p in paper.points("figure08") if p.position_method == method]
            at = [(speed[method, point.train_length], point.perplexity) for point in own]
            axes.plot(
                *zip(*at, strict=True),
                label=method_name(method),
                **style.method_look(method).line(hollow=True),
            )
            for point, place in zip(own, at, strict=True):
                axes.annotate(
                    f"L={point.train_length}",
                    place,
                    xytext=(-6, 4),
                    textcoords="offset points",
                    ha="right",
                    fontsize=8,
                )
        axes.set_xlabel("Training speed (thousand words per second)")
        axes.set_ylabel("Perplexity at length 3072 (lower is better)")
        axes.set_title("WikiText-103, validation, one V100")
        axes.margins(0.14)
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
    measured = [p for p in ours.get("wikitext-103", []) if p.subset == "valid"]
    draw_strides(measured, "WikiText-103", *paths, printed=printed)
