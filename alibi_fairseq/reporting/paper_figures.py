"""The paper's figures redrawn with ours: the paper's points hollow, ours filled. ``FIGURES`` lists them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import plots, speed
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.own_results import without_length
from alibi_fairseq.reporting.paper_tables import rows_beside
from alibi_fairseq.results.points import Point, Series, method_name, model_label, series

PAIR = ("alibi", "sinusoidal")

Speeds = Mapping[tuple[str, int], float]  # by position method and training length


def _lines(item: str, results: Results, methods: Sequence[str] = ()) -> list[Series]:
    """The rows of a table or figure as lines, by default of all methods: the paper's, then ours."""
    rows = rows_beside(paper.points(item), results.comparable(paper.about(item)["corpus"]))
    lines = [row.paper for row in rows] + [own for row in rows for own in row.ours]
    return [line for line in lines if not methods or line.position_method in methods]


def figure01(results: Results, *paths: os.PathLike) -> None:
    """Perplexity beyond the training length, all methods trained alike (Tables 2 and 3)."""
    panels = {
        "trained at L=512": without_length(_lines("table02", results)),
        "trained at L=1024": without_length(_lines("table03", results)),
    }
    plots.draw_panels("WikiText-103, validation", panels, *paths)


def figure02(results: Results, *paths: os.PathLike) -> None:
    """Speed and memory of each method: the paper's on one V100 (Table 1), then ours by machine."""
    panels = speed.speed_panels("the paper, one V100", speed.printed_speeds(), "words")
    for machine, cases in speed.speeds(results.of_kind("benchmark")).items():
        panels += speed.speed_panels(machine, cases, "tokens")
    plots.draw("Speed and memory", panels, *paths)


def figure04(results: Results, *paths: os.PathLike) -> None:
    """ALiBi trained at each length, beside sinusoidal evaluated where it was trained (Table 5)."""
    lines = _lines("table05", results, PAIR)
    plots.draw_panels("WikiText-103, validation", {"non-overlapping": lines}, *paths)


def figure05(results: Results, *paths: os.PathLike) -> None:
    """1.3B parameters: perplexity against training time, the paper's end points and our curves."""
    panels = []
    for side, title in (("left", "evaluated at 1024"), ("right", "evaluated at 2048")):
        lines = []
        for row in paper.rows("figure05"):
            if row["panel"] != side:
                continue
            label = model_label(row["position_method"], row["train_length"])
            look = plots.method_look(row["position_method"])
            end, value = [row["gpu_hours"]], row["perplexity"]
            point, note = replace(look, linestyle="none"), [(0, f"{value:.2f}")]
            name = f"{label} (paper, end point)"
            lines.append(plots.Line(name, end, [value], point, hollow=True, notes=note))
            case = {key: row[key] for key in ("position_method", "train_length", "length")}
            curve = speed.time_curve(results, "cc100-roberta", case)
            lines.append(plots.Line(label, [x for x, _ in curve], [y for _, y in curve], look))
        panels.append(plots.Panel(title, lines, "Training time (GPU hours)", over_length=False))
    plots.draw("CC100+RoBERTa, 1.3B parameters, validation", panels, *paths)


def figure06(results: Results, *paths: os.PathLike) -> None:
    """1.3B parameters beyond the training length."""
    lines = _lines("figure06", results)
    panels = {
        f"trained at L={n}": without_length(line for line in lines if line.train_length == n)
        for n in (512, 1024)
    }
    plots.draw_panels("CC100+RoBERTa, 1.3B parameters, validation", panels, *paths)


def _printed_speeds() -> Speeds:
    rows = paper.rows("figure07")
    return {
        (row["position_method"], row["train_length"]): row["train_words_per_second"] for row in rows
    }


def figure07(results: Results, *paths: os.PathLike) -> None:
    """Training speed by training length, the paper's and ours by machine, and ALiBi's share of it."""
    machines = {"the paper, one V100 (words)": _printed_speeds()}
    for machine, cases in speed.speeds(results.of_kind("benchmark")).items():
        machines[f"{machine} (tokens)"] = {
            (method, length): found["train"]
            for (method, length, _), found in cases.items()
            if method in PAIR and "train" in found
        }
    panels, ratios = [], []
    axis = "Training length (tokens)"
    for place, (machine, found) in enumerate(machines.items()):
        lines = []
        for method in PAIR:
            lengths = sorted(length for name, length in found if name == method)
            values = [found[method, length] / 1000 for length in lengths]
            look = plots.method_look(method)
            lines.append(plots.Line(method_name(method), lengths, values, look, hollow=place == 0))
        y = "Training speed (thousands per second)"
        panels.append(plots.Panel(machine, lines, axis, y, scale="from zero"))
        both = sorted(n for name, n in found if name == "alibi" and ("sinusoidal", n) in found)
        values = [found["alibi", n] / found["sinusoidal", n] for n in both]
        look = plots.numbered_look(place)
        label = f"ALiBi / sinusoidal, {machine}"
        ratios.append(plots.Line(label, both, values, look, hollow=place == 0))
    y = "ALiBi / sinusoidal"
    panels.append(plots.Panel("as a ratio to sinusoidal", ratios, axis, y, scale="from zero"))
    plots.draw("Training speed by training length", panels, *paths)


def figure08(results: Results, *paths: os.PathLike) -> None:
    """Perplexity at evaluation length 3072 against training speed: short training is cheap.

    Our speeds are those of the runs' own records, per GPU (or process).
    """
    cases = {(p.position_method, p.train_length) for p in paper.points("figure08")}
    recorded = speed.training_speeds(results, "wikitext-103")
    ours = series(
        point
        for point in results.comparable("wikitext-103")
        if (point.position_method, point.train_length) in cases & recorded.keys()
        and (point.length, point.stride, point.subset) == (3072, 3072, "valid")
    )
    averaged = [point for model in ours for point in model.points]
    panels = [
        _by_speed("the paper, one V100", _printed_speeds(), paper.points("figure08")),
        _by_speed("ours, per process", recorded, averaged),
    ]
    plots.draw("WikiText-103, validation", panels[: 2 if ours else 1], *paths)


def _by_speed(title: str, speeds: Speeds, points: Iterable[Point]) -> plots.Panel:
    printed = title.startswith("the paper")
    lines = []
    for method in PAIR:
        own = [point for point in points if point.position_method == method and point.perplexity]
        at = [speeds[method, point.train_length] / 1000 for point in own]
        notes = [(place, f"L={point.train_length}") for place, point in enumerate(own)]
        label = method_name(method) + (" (paper)" if printed else "")
        values = [point.perplexity or 0.0 for point in own]
        look = plots.method_look(method)
        lines.append(plots.Line(label, at, values, look, hollow=printed, notes=notes))
    unit = "words" if printed else "tokens"
    axes = (f"Training speed (thousand {unit} per second)", "Perplexity at length 3072")
    return plots.Panel(title, lines, *axes, over_length=False)


def figure09(results: Results, *paths: os.PathLike) -> None:
    """The same as Figure 4 on Toronto BookCorpus (Table 8)."""
    panels = {"non-overlapping": _lines("table08", results)}
    plots.draw_panels("Toronto BookCorpus, validation", panels, *paths)


def figure11(results: Results, *paths: os.PathLike) -> None:
    """Beyond the training length with a sliding window, S=1 (Tables 13 and 15)."""
    lines = [*_lines("table15", results), *_lines("table13", results)]
    plots.draw_panels("WikiText-103, validation", {"sliding window, S=1": lines}, *paths)


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
    "figure08": ("table05", "Figure 8: quality at length 3072 by training speed", figure08),
    "figure09": ("table08", "Figure 9: perplexity of ALiBi by training length on books", figure09),
    "figure11": (
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        figure11,
    ),
}
