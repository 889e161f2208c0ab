"""Figures of the paper (:data:`FIGURES`), with hollow points for the paper's values."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, NamedTuple

from ..reporting import plots
from ..reporting.figures_by_length import draw_panels, without_length
from ..reporting.line_styles import method_style
from ..results.labels import METHOD_NAMES, method_name, method_order, model_label
from ..results.measurements import Measurement
from ..results.model_groups import Series, group_by_model
from . import published
from .report_data import ReportData, SpeedsAndMemory
from .report_tables import JOINED
from .speed_table import printed_speeds
from .table_rows import table_rows

PAIR = ("alibi", "sinusoidal")
WIKITEXT = "WikiText-103, validation"
BOOKS = "Toronto BookCorpus, validation"
LARGE = "CC100+RoBERTa, 1.3B parameters, validation"

#: Values by position method and training length, such as tokens per second.
ValuesByModel = Mapping[tuple[str, int], float]


class LengthPanel(NamedTuple):
    """Panel of a figure of perplexity by evaluation length.

    Attributes:
        title: title of the panel.
        items: tables or figures of the paper whose rows are lines of the panel.
        train_length: training length of the lines, of all methods. If None, the panel has all
            training lengths, but only of ALiBi and sinusoidal.
    """

    title: str
    items: tuple[str, ...]
    train_length: int | None = None


def by_length(
    title: str, panels: Iterable[LengthPanel], results: ReportData, *paths: str | os.PathLike
) -> None:
    """Draw perplexity by evaluation length, the paper's lines and ours.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        results: our measurements.
        paths: files to write.
    """
    drawn = {}
    for panel in panels:
        drawn[panel.title] = _panel_models(panel, results)
    draw_panels(title, drawn, *paths)


def _panel_models(panel: LengthPanel, results: ReportData) -> list[Series]:
    """Return the lines of a panel, for each item the paper's and then ours."""
    models: list[Series] = []
    for item in panel.items:
        ours = results.comparable(published.about(item)["corpus"])
        rows = table_rows(published.measurements(item), ours, joined=item in JOINED)
        for row in rows:
            models.append(row.paper)
        for row in rows:
            models += row.ours
    if panel.train_length is None:
        return [series for series in models if series.position_method in PAIR]
    same_length = [series for series in models if series.train_length == panel.train_length]
    return without_length(same_length)


def _line(
    method: str, points: Sequence[tuple[float, float]], label: str = "", **options: Any
) -> plots.PlotLine:
    """Create a line in a method's style.

    Args:
        method: position method.
        points: x and y of each point.
        label: label in the legend (default: name of the method).
        options: other attributes of the line.
    """
    return plots.PlotLine(
        label=label or method_name(method),
        x=[x for x, _ in points],
        y=[y for _, y in points],
        style=method_style(method),
        **options,
    )


def figure02(results: ReportData, *paths: str | os.PathLike) -> None:
    """Draw speed and memory of each method: the paper's (Table 1, one V100) and ours."""
    panels = speed_panels("the paper, one V100", printed_speeds(), "words")
    for machine, speeds in results.speeds().items():
        panels += speed_panels(machine, speeds, "tokens")
    plots.draw("Speed and memory", panels, *paths)


def speed_panels(machine: str, speeds: SpeedsAndMemory, unit: str) -> list[plots.Panel]:
    """Return panels of training speed, evaluation speed, and memory against length.

    Args:
        machine: title of the panels.
        speeds: speeds and memory of each method.
        unit: unit of the speeds, words or tokens.
    """
    axis_labels = {
        "train": f"training (thousand {unit} per second)",
        "evaluate": f"evaluation (thousand {unit} per second)",
        "memory": "training memory (GB)",
    }
    methods = sorted({method for method, _ in speeds}, key=method_order)
    panels = []
    for quantity, axis_label in axis_labels.items():
        values = {model: measured[quantity] for model, measured in speeds.items()}
        lines = []
        for method in methods:
            lines.append(_line(method, _in_thousands(values, method)))
        panels.append(plots.Panel(machine, lines, "Length (tokens)", axis_label, from_zero=True))
    return panels


def _in_thousands(values: ValuesByModel, method: str) -> list[tuple[float, float]]:
    """Return length and value / 1000 of a method, in order of length."""
    lengths = sorted(length for name, length in values if name == method)
    return [(length, values[method, length] / 1000) for length in lengths]


def figure05(results: ReportData, *paths: str | os.PathLike) -> None:
    """Draw perplexity at 1.3B parameters by training time: the paper's end points, our curves."""
    panels = []
    for name, title in (("left", "evaluated at 1024"), ("right", "evaluated at 2048")):
        lines = []
        for row in published.rows("figure05"):
            if row["panel"] != name:
                continue
            label = model_label(row["position_method"], row["train_length"])
            curve = time_curve(results, row)
            lines.append(_end_point(row, label))
            lines.append(_line(row["position_method"], curve, label))
        panels.append(plots.Panel(title, lines, "Training time (GPU hours)", over_length=False))
    plots.draw(LARGE, panels, *paths)


def _end_point(row: dict, label: str) -> plots.PlotLine:
    """Create the single point that the paper reports for a run in Figure 5.

    Args:
        row: row of the figure's data.
        label: name of the model.
    """
    perplexity = row["perplexity"]
    point = _line(
        row["position_method"],
        [(row["gpu_hours"], perplexity)],
        f"{label} (paper, end point)",
        hollow=True,
        notes=[(0, f"{perplexity:.2f}")],
    )
    return replace(point, style=replace(point.style, linestyle="none"))


def time_curve(results: ReportData, row: dict) -> list[tuple[float, float]]:
    """Return GPU hours and validation perplexity of our run of a row of Figure 5, in order of time.

    If the row evaluates at the training length, the points are the training's own validations.
    Otherwise they are evaluations of checkpoints of the run, at the hours that its validation after
    the same number of updates recorded.

    Args:
        results: our results.
        row: row of the figure's data.
    """
    corpus = published.about("figure05")["corpus"]
    model = (row["position_method"], row["train_length"])
    validations = []
    hours = {}
    for record in results.trainings(corpus):
        is_of_model = (record["position_method"], record["train_length"]) == model
        if is_of_model and "gpu_hours" in record:
            validations.append(record)
            hours[record["updates"]] = record["gpu_hours"]
    perplexities: dict[int, float] = {}
    for updates, perplexity in _checkpoint_perplexities(results, corpus, row).items():
        if updates in hours:
            perplexities[updates] = perplexity
    # At one update count, the training's own validation takes precedence.
    for record in validations:
        if record.get("length") == row["length"]:
            perplexities[record["updates"]] = 2 ** record["loss_bits"]
    return [(hours[updates], perplexities[updates]) for updates in sorted(perplexities)]


def _checkpoint_perplexities(results: ReportData, corpus: str, row: dict) -> dict[int, float]:
    """Return our measured perplexities of a row of Figure 5, by the checkpoint's update count."""
    perplexities = {}
    for measurement in results.measurements:
        is_of_model = (
            measurement.corpus == corpus
            and measurement.model == published.model(corpus)
            and measurement.position_method == row["position_method"]
            and measurement.train_length == row["train_length"]
            and measurement.model_overrides is None
        )
        is_of_evaluation = (
            measurement.subset == "valid"
            and measurement.length == row["length"]
            and measurement.nonoverlapping
        )
        if not is_of_model or not is_of_evaluation:
            continue
        if measurement.perplexity is not None and measurement.updates is not None:
            perplexities[measurement.updates] = measurement.perplexity
    return perplexities


def _printed_train_speeds() -> ValuesByModel:
    """Return the training speeds of Figure 7 in words per second."""
    speeds = {}
    for row in published.rows("figure07"):
        speeds[row["position_method"], row["train_length"]] = row["train_words_per_second"]
    return speeds


def figure07(results: ReportData, *paths: str | os.PathLike) -> None:
    """Draw training speed by training length, and the ratio of ALiBi's speed to sinusoidal's.

    The paper's speeds come first, then ours by machine.
    """
    paper_source = "the paper, one V100 (words)"
    speeds_by_source = {paper_source: _printed_train_speeds()}
    for machine, speeds_and_memory in results.speeds().items():
        train_speeds = {model: measured["train"] for model, measured in speeds_and_memory.items()}
        speeds_by_source[f"{machine} (tokens)"] = train_speeds
    panels = []
    ratio_lines = []
    # A ratio belongs to no method. The styles of methods only distinguish the sources.
    styles = cycle(METHOD_NAMES)
    for source, speeds in speeds_by_source.items():
        is_paper = source == paper_source
        speed_lines = []
        for method in PAIR:
            points = _in_thousands(speeds, method)
            speed_lines.append(_line(method, points, hollow=is_paper))
        y = "Training speed (thousands per second)"
        panels.append(_train_length_panel(source, speed_lines, y))
        label = f"ALiBi / sinusoidal, {source}"
        ratio_lines.append(_line(next(styles), _alibi_ratios(speeds), label, hollow=is_paper))
    title = "as a ratio to sinusoidal"
    panels.append(_train_length_panel(title, ratio_lines, "ALiBi / sinusoidal"))
    plots.draw("Training speed by training length", panels, *paths)


def _train_length_panel(title: str, lines: list[plots.PlotLine], y: str) -> plots.Panel:
    """Create a panel over the training length, with ``y`` as the title of the y axis."""
    return plots.Panel(title, lines, "Training length (tokens)", y, from_zero=True)


def _alibi_ratios(speeds: ValuesByModel) -> list[tuple[float, float]]:
    """Return training length and ALiBi's speed divided by sinusoidal's."""
    ratios: list[tuple[float, float]] = []
    for (method, length), speed in sorted(speeds.items()):
        if method == "alibi" and ("sinusoidal", length) in speeds:
            ratios.append((length, speed / speeds["sinusoidal", length]))
    return ratios


def figure08(results: ReportData, *paths: str | os.PathLike) -> None:
    """Draw perplexity at evaluation length 3072 by training speed, a point per training length.

    Our speeds come from the training records, per GPU (or process).
    """
    printed = published.measurements("figure08")
    panels = [
        _quality_panel(
            "the paper, one V100", "words", _printed_train_speeds(), printed, is_paper=True
        )
    ]
    recorded = _recorded_train_speeds(results)
    printed_models = {_model_of(measurement) for measurement in printed}
    usable = []
    for measurement in results.comparable("wikitext-103"):
        is_evaluation = (
            measurement.subset == "valid"
            and measurement.length == 3072
            and measurement.nonoverlapping
        )
        model = _model_of(measurement)
        if is_evaluation and model in printed_models and model in recorded:
            usable.append(measurement)
    ours: list[Measurement] = []
    for series in group_by_model(usable):
        ours += series.measurements
    if ours:
        panels.append(_quality_panel("ours, per process", "tokens", recorded, ours, is_paper=False))
    plots.draw(WIKITEXT, panels, *paths)


def _model_of(measurement: Measurement) -> tuple[str, int]:
    """Return position method and training length, the keys of :data:`ValuesByModel`."""
    return (measurement.position_method, measurement.train_length)


def _recorded_train_speeds(results: ReportData) -> ValuesByModel:
    """Return the tokens per second and process of our runs on WikiText-103."""
    speeds = {}
    for record in results.trainings("wikitext-103"):
        if "tokens_per_second" in record:
            model = (record["position_method"], record["train_length"])
            speeds[model] = record["tokens_per_second"] / record.get("processes", 1)
    return speeds


def _quality_panel(
    title: str,
    unit: str,
    speeds: ValuesByModel,
    measurements: Sequence[Measurement],
    is_paper: bool,
) -> plots.Panel:
    """Return a panel of Figure 8.

    Args:
        title: title of the panel.
        unit: unit of the speeds, words or tokens.
        speeds: training speeds.
        measurements: measurements whose models all have a speed.
        is_paper: whether the numbers are the paper's.
    """
    lines = []
    for method in PAIR:
        label = method_name(method)
        if is_paper:
            label += " (paper)"
        points: list[tuple[float, float]] = []
        notes = []
        for measurement in measurements:
            if measurement.position_method != method or measurement.perplexity is None:
                continue
            notes.append((len(points), f"L={measurement.train_length}"))
            speed = speeds[_model_of(measurement)]
            points.append((speed / 1000, measurement.perplexity))
        lines.append(_line(method, points, label, hollow=is_paper, notes=notes))
    return plots.Panel(
        title,
        lines,
        x=f"Training speed (thousand {unit} per second)",
        y="Perplexity at length 3072",
        over_length=False,
    )


class PaperFigure(NamedTuple):
    """Figure of the paper in the report.

    Attributes:
        table: table that the figure follows in the report.
        caption: caption of the figure.
        draw: function of our results and the paths to write.
    """

    table: str
    caption: str
    draw: Callable[..., None]


#: Figures with data, by item.
FIGURES: dict[str, PaperFigure] = {
    "figure01": PaperFigure(
        "table04",
        "Figure 1: perplexity beyond the training length",
        partial(
            by_length,
            WIKITEXT,
            [
                LengthPanel("trained at L=512", ("table02",), 512),
                LengthPanel("trained at L=1024", ("table03",), 1024),
            ],
        ),
    ),
    "figure02": PaperFigure("table01", "Figure 2: speed and memory", figure02),
    "figure04": PaperFigure(
        "table05",
        "Figure 4: perplexity of ALiBi by training length",
        partial(by_length, WIKITEXT, [LengthPanel("non-overlapping", ("table05",))]),
    ),
    "figure05": PaperFigure(
        "table11",
        "Figure 5: perplexity of 1.3B parameters by training time; the paper's end points",
        figure05,
    ),
    "figure06": PaperFigure(
        "table12",
        "Figure 6: perplexity of 1.3B parameters beyond the training length",
        partial(
            by_length,
            LARGE,
            [
                LengthPanel("trained at L=512", ("figure06",), 512),
                LengthPanel("trained at L=1024", ("figure06",), 1024),
            ],
        ),
    ),
    "figure07": PaperFigure("table05", "Figure 7: training speed by training length", figure07),
    "figure08": PaperFigure(
        "table05", "Figure 8: quality at length 3072 by training speed", figure08
    ),
    "figure09": PaperFigure(
        "table08",
        "Figure 9: perplexity of ALiBi by training length on books",
        partial(by_length, BOOKS, [LengthPanel("non-overlapping", ("table08",))]),
    ),
    "figure11": PaperFigure(
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        partial(by_length, WIKITEXT, [LengthPanel("sliding window, S=1", ("table15", "table13"))]),
    ),
}
