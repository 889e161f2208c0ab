"""Figures 2, 5, 7, and 8 of the paper: speed, memory, and training time, next to ours."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..positions.display_names import method_name
from ..reporting import plots
from ..reporting.line_styles import method_style
from ..reporting.rows import model_label
from ..results.result import TextValues
from ..results.series import Series
from . import published
from .report_data import ReportData
from .speeds import (
    PAPER,
    TRAININGS,
    Model,
    Speeds,
    measured_speeds,
    perplexities_at,
    printed_speeds,
    printed_training_speeds,
    trained_speeds,
)

#: Methods of Figures 7 and 8.
_PAIR = ("sinusoidal", "alibi")
#: Evaluation length of Figure 8.
_LENGTH = 3072


def draw_speed_and_memory(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw Figure 2, a row of three panels for the paper and for each source of ours."""
    panels = _speed_panels(PAPER, printed_speeds(), "words")
    for source, speeds in measured_speeds(report_data).items():
        panels += _speed_panels(source, speeds, "tokens")
    plots.draw("Speed and memory", panels, *paths)


def _speed_panels(source: str, speeds: Speeds, unit: str) -> list[plots.Panel]:
    """Return the panels of training speed, evaluation speed, and memory by length."""
    quantities = (
        ("train", f"Training (thousand {unit} per second)", 1000),
        ("evaluate", f"Evaluation (thousand {unit} per second)", 1000),
        ("memory_gb", "Memory of training (GB)", 1),
    )
    methods = list(dict.fromkeys(model.method for model in speeds))
    panels = []
    for quantity, y, scale in quantities:
        values = {}
        for model, speed in speeds.items():
            value = getattr(speed, quantity)
            if value is not None:
                values[model] = value / scale
        panels.append(_length_panel(source, values, methods, y))
    return panels


def _length_panel(
    title: str, values: Mapping[Model, float], methods: Iterable[str], y: str
) -> plots.Panel:
    """Return a panel of values by length, with a y axis from zero."""
    lines = []
    for method in methods:
        lengths = sorted(model.length for model in values if model.method == method)
        of_method = [values[Model(method, length)] for length in lengths]
        style = method_style(method_name(method))
        hollow = title == PAPER
        lines.append(plots.PlotLine(method_name(method), lengths, of_method, style, hollow=hollow))
    return plots.Panel(
        title,
        lines,
        x="Training length (tokens)",
        y=y,
        y_limits=(0, 1.08 * max(values.values(), default=1)),
    )


def draw_training_speed(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw Figure 7, a panel for the paper and for each source of ours."""
    speeds_by_source = {PAPER: printed_training_speeds(), **measured_speeds(report_data)}
    panels = []
    for source, speeds in speeds_by_source.items():
        unit = "words" if source == PAPER else "tokens"
        values = {}
        for model, speed in speeds.items():
            if speed.train is not None:
                values[model] = speed.train / 1000
        panels.append(_length_panel(source, values, _PAIR, f"Thousand {unit} per second"))
    plots.draw("Training speed by training length", panels, *paths)


def draw_perplexity_by_speed(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw Figure 8: perplexity at 3,072 tokens, a point per training length."""
    printed = {}
    for measurement in published.measurements("figure08"):
        assert measurement.perplexity is not None, "the figure has a point"
        model = Model(measurement.method.notation, measurement.train_length)
        printed[model] = measurement.perplexity
    panels = [_perplexity_panel(PAPER, printed, printed_training_speeds(), "words")]
    perplexities = perplexities_at(report_data, _LENGTH)
    ours = {model: value for model, value in perplexities.items() if model in printed}
    speeds = trained_speeds(report_data)
    if any(model in speeds for model in ours):
        panels.append(_perplexity_panel(TRAININGS, ours, speeds, "tokens"))
    plots.draw(f"WikiText-103, validation, windows of {_LENGTH} tokens", panels, *paths)


def _perplexity_panel(
    title: str, perplexities: Mapping[Model, float], speeds: Speeds, unit: str
) -> plots.Panel:
    """Return a panel of perplexity by training speed, each point with its training length."""
    lines = []
    for method in _PAIR:
        x: list[float] = []
        y = []
        notes = []
        for model in sorted(perplexities):
            train = speeds[model].train if model in speeds else None
            if model.method != method or train is None:
                continue
            notes.append((len(x), f"L={model.length}"))
            x.append(train / 1000)
            y.append(perplexities[model])
        style = method_style(method_name(method))
        hollow = title == PAPER
        line = plots.PlotLine(method_name(method), x, y, style, hollow=hollow, notes=notes)
        lines.append(line)
    speed = f"Training speed (thousand {unit} per second)"
    return plots.Panel(title, lines, x=speed, over_length=False)


def draw_training_time(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw Figure 5: perplexity by training time, the paper's end points and our curves."""
    panels = []
    for side, length in (("left", 1024), ("right", 2048)):
        lines = []
        for row in published.rows("figure05"):
            if row["panel"] == side:
                lines.append(_end_point(row))
                lines += _time_curves(report_data, row)
        title = f"evaluated at {length}"
        x = "Training time (GPU hours)"
        panels.append(plots.Panel(title, lines, x=x, over_length=False))
    plots.draw("CC100+RoBERTa, 1.3B parameters, validation", panels, *paths)


def _end_point(row: dict) -> plots.PlotLine:
    """Return the point that the paper reports of a model."""
    label = model_label(method_name(row["position_method"]), row["train_length"])
    style = replace(method_style(method_name(row["position_method"])), linestyle="none")
    return plots.PlotLine(
        f"{label} (paper, end: {row['perplexity']:.2f})",
        [row["gpu_hours"]],
        [row["perplexity"]],
        style,
        hollow=True,
    )


def _time_curves(report_data: ReportData, row: dict) -> list[plots.PlotLine]:
    """Return the curves of our models of a row of the figure, one for each way of training.

    A model is one in the paper's setting whose training is in the results.
    """
    of_row = (row["position_method"], row["train_length"])
    models: dict[Series, None] = {}
    for result in report_data.comparable(published.corpus_of("figure05")):
        series = result.series
        if (series.method.notation, series.train_length) == of_row:
            models[series] = None
    curves = []
    for series in models:
        curve = _time_curve(report_data, series, row["length"])
        name = method_name(row["position_method"])
        label = model_label(name, row["train_length"])
        x = [hours for hours, _ in curve]
        y = [perplexity for _, perplexity in curve]
        curves.append(plots.PlotLine(label, x, y, method_style(name)))
    return curves


def _time_curve(report_data: ReportData, series: Series, length: int) -> list[tuple[float, float]]:
    """Return GPU hours and perplexity of our models by number of updates, as means over seeds.

    At the training length, the perplexities are the training's own validations. At another length,
    they are evaluations of its checkpoints, at the hours that the validation after the same number
    of updates recorded.
    """
    hours = {}
    perplexities = {}
    for validation in report_data.validations_of(series):
        checkpoint = (validation.updates, validation.seed)
        if validation.cost.gpu_seconds is not None:
            hours[checkpoint] = validation.cost.gpu_seconds / 3600
        if validation.case.length == length and isinstance(validation.values, TextValues):
            perplexities[checkpoint] = validation.values.perplexity
    if length != series.train_length:
        for result in report_data.results:
            case = result.case
            is_of_figure = case.split == "valid" and (case.length, case.stride) == (length, length)
            if result.series != series or result.reading.overrides or case.has_range:
                continue
            if is_of_figure and isinstance(result.values, TextValues):
                perplexities[result.updates, result.seed] = result.values.perplexity
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
