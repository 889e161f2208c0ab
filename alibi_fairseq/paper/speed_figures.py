"""Figures 2, 7, and 8 of the paper: speed, memory, and perplexity by training speed."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import cycle

from ..reporting import plots
from ..results.labels import METHOD_NAMES, method_name, method_order
from ..results.model_groups import average_by_model
from ..results.record import Measurement
from . import published
from .method_line import method_line
from .report_data import ReportData, SpeedsAndMemory, model_of, of_longest_training
from .speed_table import printed_speeds
from .table_rows import has_update_count

PAIR = ("alibi", "sinusoidal")

#: Values by position method and training length, such as tokens per second.
ValuesByModel = Mapping[tuple[str, int], float]


def draw_figure02(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw speed and memory of each method: the paper's (Table 1, one V100) and ours."""
    panels = speed_panels("the paper, one V100", printed_speeds(), "words")
    for title, speeds in report_data.speeds().items():
        panels += speed_panels(title, speeds, "tokens")
    plots.draw("Speed and memory", panels, *paths)


def speed_panels(title: str, speeds: SpeedsAndMemory, unit: str) -> list[plots.Panel]:
    """Return panels of training speed, evaluation speed, and memory against length.

    Args:
        title: title of the panels.
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
            lines.append(method_line(method, _in_thousands(values, method)))
        panels.append(plots.Panel(title, lines, "Length (tokens)", axis_label, from_zero=True))
    return panels


def _in_thousands(values: ValuesByModel, method: str) -> list[tuple[float, float]]:
    """Return length and value / 1000 of a method, in order of length."""
    lengths = sorted(length for name, length in values if name == method)
    return [(length, values[method, length] / 1000) for length in lengths]


def _printed_train_speeds() -> ValuesByModel:
    """Return the training speeds of Figure 7 in words per second."""
    speeds = {}
    for row in published.rows("figure07"):
        speeds[row["position_method"], row["train_length"]] = row["train_words_per_second"]
    return speeds


def draw_figure07(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw training speed by training length, and the ratio of ALiBi's speed to sinusoidal's.

    The paper's speeds come first, then ours by machine and file.
    """
    paper_source = "the paper, one V100 (words)"
    speeds_by_source = {paper_source: _printed_train_speeds()}
    for title, speeds_and_memory in report_data.speeds().items():
        train_speeds = {model: measured["train"] for model, measured in speeds_and_memory.items()}
        speeds_by_source[f"{title} (tokens)"] = train_speeds
    panels = []
    ratio_lines = []
    # A ratio belongs to no method. The styles of methods only distinguish the sources.
    styles = cycle(METHOD_NAMES)
    for source, speeds in speeds_by_source.items():
        is_printed = source == paper_source
        speed_lines = []
        for method in PAIR:
            points = _in_thousands(speeds, method)
            speed_lines.append(method_line(method, points, hollow=is_printed))
        y = "Training speed (thousands per second)"
        panels.append(_train_length_panel(source, speed_lines, y))
        label = f"ALiBi / sinusoidal, {source}"
        ratio_lines.append(
            method_line(next(styles), _alibi_ratios(speeds), label, hollow=is_printed)
        )
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


def draw_figure08(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw perplexity at evaluation length 3072 by training speed, a point per training length.

    Our speeds come from the training records, per GPU (or process).
    """
    printed = published.measurements("figure08")
    panels = [
        _quality_panel(
            "the paper, one V100", "words", _printed_train_speeds(), printed, is_printed=True
        )
    ]
    recorded = recorded_train_speeds(report_data)
    printed_models = {model_of(measurement) for measurement in printed}
    usable = []
    for measurement in report_data.comparable("wikitext-103"):
        is_evaluation = (
            measurement.subset == "valid"
            and measurement.length == 3072
            and measurement.nonoverlapping
        )
        model = model_of(measurement)
        if is_evaluation and model in printed_models and model in recorded:
            usable.append(measurement)
    ours: list[Measurement] = []
    for averaged in average_by_model(usable):
        ours += averaged.measurements
    if ours:
        panels.append(
            _quality_panel("ours, per process", "tokens", recorded, ours, is_printed=False)
        )
    plots.draw("WikiText-103, validation", panels, *paths)


def recorded_train_speeds(report_data: ReportData) -> ValuesByModel:
    """Return the tokens per second and process of our runs on WikiText-103, averaged over seeds.

    A run counts if it has the paper's number of updates. Of runs with different options, only
    :func:`.of_longest_training` count.
    """
    corpus = "wikitext-103"
    finished = []
    for validation in report_data.validations(corpus):
        is_finished = has_update_count(validation.updates, published.updates(corpus))
        if is_finished and validation.tokens_per_second_per_process is not None:
            finished.append(validation)
    speeds_by_model: dict[tuple[str, int], dict[int | None, float]] = defaultdict(dict)
    for validation in of_longest_training(finished):
        # It has the speed since the beginning, so the last one replaces those before it.
        speed = validation.tokens_per_second_per_process
        assert speed is not None
        speeds_by_model[model_of(validation)][validation.model.seed] = speed
    means = {}
    for model, speed_by_seed in speeds_by_model.items():
        means[model] = statistics.fmean(speed_by_seed.values())
    return means


def _quality_panel(
    title: str,
    unit: str,
    speeds: ValuesByModel,
    measurements: Sequence[Measurement],
    is_printed: bool,
) -> plots.Panel:
    """Return a panel of Figure 8.

    Args:
        title: title of the panel.
        unit: unit of the speeds, words or tokens.
        speeds: training speeds.
        measurements: measurements whose models all have a speed.
        is_printed: True if the numbers are the paper's.
    """
    lines = []
    for method in PAIR:
        label = method_name(method)
        if is_printed:
            label += " (paper)"
        points: list[tuple[float, float]] = []
        notes = []
        for measurement in measurements:
            if measurement.model.position_method != method or measurement.perplexity is None:
                continue
            notes.append((len(points), f"L={measurement.model.train_length}"))
            speed = speeds[model_of(measurement)]
            points.append((speed / 1000, measurement.perplexity))
        lines.append(method_line(method, points, label, hollow=is_printed, notes=notes))
    return plots.Panel(
        title,
        lines,
        x=f"Training speed (thousand {unit} per second)",
        y="Perplexity at length 3072",
        over_length=False,
    )
