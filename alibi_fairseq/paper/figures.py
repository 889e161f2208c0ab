"""Figures of the paper next to ours, with hollow points for the paper's values.

``results/paper/index.csv`` says which of :data:`DRAWINGS` draws a figure, and from which numbers.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from ..positions.display_names import method_name
from ..reporting import plots
from ..reporting.figure_panels import PanelRows, draw_panels
from ..reporting.figures_by_length import length_line
from ..reporting.line_styles import method_style
from ..reporting.row import model_label
from ..reporting.texts import TextGroup, identify_text
from ..results.series import Series
from ..results.values import TextValues
from . import published
from .collected_results import CollectedResults
from .items import Item
from .speeds import (
    PAPER,
    Speeds,
    TimedModel,
    is_validation,
    measured_speeds,
    printed_speeds,
    trained_rows,
    trained_speeds,
)
from .table_rows import table_rows

#: Attribute of a speed, title of its axis, and the number by which its values are divided.
_QUANTITIES = (
    ("train", "Training (thousand {unit} per second)", 1000),
    ("evaluate", "Evaluation (thousand {unit} per second)", 1000),
    ("memory_gb", "Memory of training (GB)", 1),
)


def draw(item: Item, collected: CollectedResults, *paths: str | os.PathLike) -> None:
    """Draw a figure, and write it to paths.

    Args:
        item: the figure.
        collected: our results.
        paths: files to write.
    """
    DRAWINGS[item.drawing](item, collected, *paths)


def item_caption(item: Item, suffix: str = "") -> str:
    """Return the caption of a figure, with the notes on it.

    Args:
        item: the figure.
        suffix: text after the name of the figure and its content.
    """
    text = f"{item.name}: {item.content}{suffix}"
    notes = "; ".join(published.notes(item.key)).rstrip(".")
    return f"{text}. {notes}" if notes else text


def _title(item: Item) -> str:
    """Return the title of a figure of perplexities."""
    setting = published.paper_setting(item.corpus)
    assert setting is not None, "a figure is about a corpus of the paper"
    return f"{setting['title']}, validation"


def draw_perplexity_by_length(
    item: Item, collected: CollectedResults, *paths: str | os.PathLike
) -> None:
    """Draw perplexity by evaluation length: of each item the paper's lines, and then ours."""
    rows = table_rows(item, collected.comparable(item.corpus))
    lines = [row.printed for row in rows]
    for row in rows:
        lines += row.ours
    case = item.measurements[0].case
    stride = None if case.nonoverlapping else case.stride
    windows = TextGroup(case.split, stride, text="").windows_in_words
    panels = []
    if item.panel_per_length:
        for length in dict.fromkeys(line.train_length for line in lines):
            same_length = [line for line in lines if line.train_length == length]
            panels.append(PanelRows(same_length, windows=windows))
    else:
        panels.append(PanelRows(lines, windows=windows))
    draw_panels(_title(item), panels, *paths, make_line=length_line)


def draw_speeds(item: Item, collected: CollectedResults, *paths: str | os.PathLike) -> None:
    """Draw speeds and memory by training length: a panel for each source and printed quantity."""
    printed = printed_speeds(item)
    panels = []
    for source, speeds in {PAPER: printed, **measured_speeds(collected, item.corpus)}.items():
        unit = "words" if source == PAPER else "tokens"
        for attribute, title, scale in _QUANTITIES:
            if any(getattr(speed, attribute) is not None for speed in printed.values()):
                y = title.format(unit=unit)
                panels.append(_length_panel(source, speeds, attribute, y, scale))
    title = item.content[0].upper() + item.content[1:]
    plots.draw(title, panels, *paths, columns=len(_QUANTITIES))


def _length_panel(source: str, speeds: Speeds, attribute: str, y: str, scale: int) -> plots.Panel:
    """Return a panel of a quantity by training length, with a y axis from zero.

    Args:
        source: source of the values.
        speeds: values by model.
        attribute: attribute of a speed with the quantity.
        y: title of the y axis.
        scale: number by which values are divided.
    """
    values = {}
    for model, speed in speeds.items():
        value = getattr(speed, attribute)
        if value is not None:
            values[model] = value / scale
    lines = []
    for first in dict.fromkeys(model._replace(length=0) for model in speeds):
        lengths = sorted(model.length for model in values if model._replace(length=0) == first)
        of_lengths = [values[first._replace(length=length)] for length in lengths]
        lines.append(_line(source, first, lengths, of_lengths))
    y_limits = (0, 1.08 * max(values.values(), default=1))
    return plots.Panel(source, lines, x="Training length (tokens)", y=y, y_limits=y_limits)


def _line(
    source: str,
    model: TimedModel,
    x: Sequence[float],
    y: Sequence[float],
    notes: Sequence[tuple[int, str]] = (),
) -> plots.PlotLine:
    """Return the line of a model at all training lengths; the paper's points are hollow."""
    style = method_style(method_name(model.method))
    return plots.PlotLine(model.name, x, y, style, hollow=source == PAPER, notes=notes)


def draw_perplexity_by_speed(
    item: Item, collected: CollectedResults, *paths: str | os.PathLike
) -> None:
    """Draw perplexity at one length by training speed, a point per training length."""
    printed = {}
    for measurement in item.measurements:
        assert measurement.method is not None, "measurements of the paper's models"
        model = TimedModel(measurement.method.notation, measurement.train_length)
        printed[model] = measurement.perplexity
    length = item.measurements[0].case.length
    panels = [_perplexity_panel(PAPER, printed, printed_speeds(item), "words")]
    ours = {}
    for model, row in trained_rows(collected, item.corpus).items():
        if model._replace(variant="") not in printed:
            continue
        for point in row.points:
            if is_validation(point.case, length):
                ours[model] = point.perplexity
    for source, speeds in trained_speeds(collected, item.corpus).items():
        if any(model in speeds for model in ours):
            panels.append(_perplexity_panel(source, ours, speeds, "tokens"))
    plots.draw(f"{_title(item)}, windows of {length} tokens", panels, *paths)


def _perplexity_panel(
    source: str, perplexities: Mapping[TimedModel, float | None], speeds: Speeds, unit: str
) -> plots.Panel:
    """Return a panel of perplexity by training speed, each point with its training length."""
    lines = []
    for first in dict.fromkeys(model._replace(length=0) for model in perplexities):
        points = []
        for model, perplexity in perplexities.items():
            train = speeds[model].train if model in speeds else None
            if train is None or perplexity is None:
                continue
            if model._replace(length=0) == first:
                points.append((train / 1000, perplexity, f"L={model.length}"))
        points.sort()
        x = [speed for speed, _, _ in points]
        y = [perplexity for _, perplexity, _ in points]
        notes = [(index, text) for index, (_, _, text) in enumerate(points)]
        lines.append(_line(source, first, x, y, notes))
    speed = f"Training speed (thousand {unit} per second)"
    return plots.Panel(source, lines, x=speed, over_length=False)


def draw_training_time(item: Item, collected: CollectedResults, *paths: str | os.PathLike) -> None:
    """Draw perplexity by training time: of the paper's curves the ends, and ours."""
    lines: dict[int, list[plots.PlotLine]] = defaultdict(list)
    for numbers in item.numbers:
        for row in published.rows(numbers):
            if row["perplexity"] is None:
                continue  # a point of a curve, of which only the end is known
            lines[row["length"]].append(_end_point(row))
            lines[row["length"]] += _time_curves(item, collected, row)
    panels = []
    for length, of_length in lines.items():
        x = "Training time (GPU hours)"
        panels.append(plots.Panel(f"evaluated at {length}", of_length, x=x, over_length=False))
    plots.draw(_title(item), panels, *paths)


def _end_point(row: dict) -> plots.PlotLine:
    """Return the point that the paper reports of a model."""
    label = model_label(method_name(row["position_method"]), row["train_length"])
    return plots.PlotLine(
        f"{label} (paper, end: {row['perplexity']:.2f})",
        [row["gpu_hours"]],
        [row["perplexity"]],
        replace(method_style(method_name(row["position_method"])), linestyle="none"),
        hollow=True,
    )


def _time_curves(item: Item, collected: CollectedResults, row: dict) -> list[plots.PlotLine]:
    """Return the curves of our models of a row of the figure.

    There is one for each way of training and machine. A model is one in the paper's setting whose
    training is in the results.
    """
    of_row = (row["position_method"], row["train_length"])
    models: dict[Series, None] = {}
    for result in collected.comparable(item.corpus):
        series = result.series
        if (series.method.notation, series.train_length) == of_row:
            models[series] = None
    length = row["length"]
    curves = []
    for series, (machine, of_machine) in product(models, collected.by_machine().items()):
        if length == series.train_length:
            measured = [_validations(of_machine, series)]
        else:
            measured = _evaluations(of_machine, item.corpus, series, length)
        for perplexities in measured:
            curve = _time_curve(of_machine, series, perplexities)
            if curve:
                curves.append((machine, curve))
    has_several_machines = len({machine for machine, _ in curves}) > 1
    name = method_name(row["position_method"])
    label = model_label(name, row["train_length"])
    lines = []
    for machine, curve in curves:
        x = [hours for hours, _ in curve]
        y = [perplexity for _, perplexity in curve]
        text = f"{label}, {machine}" if has_several_machines else label
        lines.append(plots.PlotLine(text, x, y, method_style(name)))
    return lines


#: Perplexity by number of updates and seed.
Perplexities = dict[tuple[int | None, int | None], float]


def _validations(collected: CollectedResults, series: Series) -> Perplexities:
    """Return the perplexities that the trainings of a series measured at their length."""
    perplexities = {}
    for validation in collected.select_validations(series):
        if isinstance(validation.values, TextValues):
            perplexities[validation.updates, validation.seed] = validation.values.perplexity
    return perplexities


def _evaluations(
    collected: CollectedResults, corpus: str, series: Series, length: int
) -> list[Perplexities]:
    """Return the perplexities of the checkpoints of a series at a length.

    There is one item for each validation split of this name, and for each precision.
    """
    by_text: dict[tuple, Perplexities] = defaultdict(dict)
    for result in collected.results:
        if result.series != series or result.case.corpus != corpus:
            continue
        if result.reading.overrides or result.case.has_range:
            continue
        if is_validation(result.case, length) and isinstance(result.values, TextValues):
            perplexities = by_text[identify_text(result), result.reading.precision]
            perplexities[result.updates, result.seed] = result.values.perplexity
    return list(by_text.values())


def _time_curve(
    collected: CollectedResults, series: Series, perplexities: Perplexities
) -> list[tuple[float, float]]:
    """Return GPU hours and perplexity of our models by number of updates, as means over seeds.

    The hours are those that the validation after the same number of updates recorded.
    """
    hours = {}
    for validation in collected.select_validations(series):
        if validation.cost.gpu_seconds is not None:
            hours[validation.updates, validation.seed] = validation.cost.gpu_seconds / 3600
    by_updates = defaultdict(list)
    for checkpoint, perplexity in perplexities.items():
        if checkpoint in hours:
            by_updates[checkpoint[0]].append((hours[checkpoint], perplexity))
    curve = []
    for points in by_updates.values():
        mean_hours = statistics.fmean(of_seed for of_seed, _ in points)
        mean_perplexity = statistics.fmean(perplexity for _, perplexity in points)
        curve.append((mean_hours, mean_perplexity))
    return sorted(curve)


#: Functions that draw figures, by what ``index.csv`` calls them.
DRAWINGS = {
    "lengths": draw_perplexity_by_length,
    "speeds": draw_speeds,
    "perplexity by speed": draw_perplexity_by_speed,
    "training time": draw_training_time,
}
