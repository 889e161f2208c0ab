"""Figure 5 of the paper: perplexity at 1.3B parameters by training time."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from dataclasses import replace
from typing import NamedTuple

from ..reporting import plots
from ..results.labels import model_label
from ..results.record import Model
from . import published
from .method_line import method_line
from .report_data import ReportData, model_of, of_longest_training


class Checkpoint(NamedTuple):
    """Number of updates and seed of a checkpoint of one model; an unknown seed is None."""

    updates: int
    seed: int | None


def draw_figure05(report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw perplexity at 1.3B parameters by training time: the paper's end points, our curves."""
    panels = []
    for name, title in (("left", "evaluated at 1024"), ("right", "evaluated at 2048")):
        lines = []
        for row in published.rows("figure05"):
            if row["panel"] != name:
                continue
            label = model_label(row["position_method"], row["train_length"])
            curve = time_curve(report_data, row)
            lines.append(_end_point(row, label))
            lines.append(method_line(row["position_method"], curve, label))
        panels.append(plots.Panel(title, lines, "Training time (GPU hours)", over_length=False))
    plots.draw("1.3B parameters by training time", panels, *paths)


def _end_point(row: dict, label: str) -> plots.PlotLine:
    """Create the single point that the paper reports for a run in Figure 5.

    Args:
        row: row of the figure's data.
        label: name of the model.
    """
    perplexity = row["perplexity"]
    point = method_line(
        row["position_method"],
        [(row["gpu_hours"], perplexity)],
        f"{label} (paper, end point)",
        hollow=True,
        notes=[(0, f"{perplexity:.2f}")],
    )
    return replace(point, style=replace(point.style, linestyle="none"))


def time_curve(report_data: ReportData, row: dict) -> list[tuple[float, float]]:
    """Return GPU hours and validation perplexity of our run of a row of Figure 5, in order of time.

    If the row evaluates at the training length, the points are the training's own validations.
    Otherwise they are evaluations of checkpoints of the run, at the hours that its validation after
    the same number of updates recorded. Hours and perplexities at the same number of updates are
    averaged over seeds. Of runs with different options, only :func:`.of_longest_training` are
    drawn.

    Args:
        report_data: our results.
        row: row of the figure's data.
    """
    records = []
    for validation in report_data.validations(published.corpus_of("figure05")):
        is_of_model = model_of(validation) == (row["position_method"], row["train_length"])
        if is_of_model and validation.gpu_hours is not None:
            records.append(validation)
    if not records:
        return []
    records = of_longest_training(records)
    perplexities = _checkpoint_perplexities(report_data, row, records[0].model)
    hours = {}
    for validation in records:
        checkpoint = Checkpoint(validation.updates, validation.model.seed)
        hours[checkpoint] = validation.gpu_hours or 0.0
        # The training's own validation takes precedence over an evaluation of its checkpoint.
        if validation.length == row["length"]:
            perplexities[checkpoint] = 2**validation.loss_bits
    points_by_updates = defaultdict(list)
    for checkpoint in perplexities:
        if checkpoint in hours:
            point = (hours[checkpoint], perplexities[checkpoint])
            points_by_updates[checkpoint.updates].append(point)
    curve = []
    for updates in sorted(points_by_updates):
        points = points_by_updates[updates]
        mean_hours = statistics.fmean(hours for hours, _ in points)
        mean_perplexity = statistics.fmean(perplexity for _, perplexity in points)
        curve.append((mean_hours, mean_perplexity))
    return curve


def _checkpoint_perplexities(
    report_data: ReportData, row: dict, trained: Model
) -> dict[Checkpoint, float]:
    """Return our measured perplexities of a row of Figure 5, by checkpoint.

    Args:
        report_data: our results.
        row: row of the figure's data.
        trained: the model, with any seed. Measurements without recorded options can be of any
            model.
    """
    corpus = published.corpus_of("figure05")
    perplexities = {}
    for measurement in report_data.measurements:
        is_of_model = (
            measurement.corpus == corpus
            and measurement.model.architecture == published.model(corpus)
            and model_of(measurement) == (row["position_method"], row["train_length"])
            and measurement.model.overrides is None
        )
        is_of_evaluation = (
            measurement.subset == "valid"
            and measurement.length == row["length"]
            and measurement.nonoverlapping
            and measurement.score_from is None
            and measurement.score_to is None
        )
        is_of_training = measurement.model.options in (None, trained.options)
        if not is_of_model or not is_of_evaluation or not is_of_training:
            continue
        if measurement.perplexity is not None and measurement.model.updates is not None:
            checkpoint = Checkpoint(measurement.model.updates, measurement.model.seed)
            perplexities[checkpoint] = measurement.perplexity
    return perplexities
