"""Tables of the accuracy of probes."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..results.groups import ModelMeasurements, group_by_model
from ..results.model import ModelKey
from ..results.record import ProbeMeasurement
from . import markdown
from .caption import conditions

#: Smallest accuracy at the training length of a model that has learned a probe's task. A model that
#: repeats the symbols of a string, or the values of pairs, in any order stays far below it.
MIN_LEARNED_ACCURACY = 0.5
#: Multiples of the training length in tables of models.
COLUMN_MULTIPLES = (1, 4)


@dataclass(frozen=True)
class ProbedModel:
    """Model tested on a probe, with one or several seeds.

    Attributes:
        key: key of the model in tables of perplexity.
        label: name in tables and figures.
        measurements: accuracies by run, length, and depth.
        accuracies: accuracies of the seeds, averaged over depths, by multiple of the training
            length, ascending.
    """

    key: ModelKey
    label: str
    measurements: Sequence[ProbeMeasurement]
    accuracies: dict[float, list[float]]


def probed_models(measurements: Iterable[ProbeMeasurement]) -> list[ProbedModel]:
    """Return the models of measurements of a probe, in table order.

    As in tables of perplexity, only seeds of the same model share a row.
    """
    models = []
    for model in group_by_model(measurements):
        accuracies = _accuracies(model)
        models.append(ProbedModel(model.key, model.label, model.measurements, accuracies))
    return models


def _accuracies(model: ModelMeasurements[ProbeMeasurement]) -> dict[float, list[float]]:
    """Return the accuracies of each seed by multiple of the training length.

    They are averaged over depths.
    """
    over_depths: dict[tuple[int, tuple], list[float]] = defaultdict(list)  # by length and run
    for measurement in model.measurements:
        length_and_run = (measurement.length, measurement.model.checkpoint_key)
        over_depths[length_and_run].append(measurement.accuracy)
    by_length: dict[int, list[float]] = defaultdict(list)
    for (length, _), accuracies in over_depths.items():
        by_length[length].append(statistics.fmean(accuracies))
    by_multiple = {}
    for length in sorted(by_length):
        multiple = length / (model.train_length or length)
        by_multiple[multiple] = by_length[length]
    return by_multiple


def format_accuracy(values: Sequence[float] | None) -> str:
    """Format the mean over seeds in percent, with the standard deviation of several seeds.

    Args:
        values: accuracies of the seeds; None or empty if there are none.
    """
    if not values:
        return markdown.NOTHING
    text = f"{100 * statistics.fmean(values):.0f}%"
    if len(values) > 1:
        text += f" ± {100 * statistics.stdev(values):.0f}"
    return text


def is_learned(models: Sequence[ProbedModel]) -> bool:
    """Return True if any model has learned the task, or none was tested at its training length."""
    at_train_length = []
    for model in models:
        if 1 in model.accuracies:
            at_train_length.append(statistics.fmean(model.accuracies[1]))
    if not at_train_length:
        return True
    return max(at_train_length) >= MIN_LEARNED_ACCURACY


def probe_columns(
    name: str, measurements: Iterable[ProbeMeasurement]
) -> dict[str, Mapping[ModelKey, str]]:
    """Return columns for a table of models: header → model → text.

    There are no columns if no model has learned the task. A cell for several models with the same
    key has their accuracies, separated by slashes.

    Args:
        name: name of the probe.
        measurements: measurements of the probe.
    """
    models = probed_models(measurements)
    if not models or not is_learned(models):
        return {}
    columns: dict[str, Mapping[ModelKey, str]] = {}
    for multiple in COLUMN_MULTIPLES:
        texts: dict[ModelKey, str] = {}
        for model in models:
            text = format_accuracy(model.accuracies.get(multiple))
            if model.key in texts:
                text = f"{texts[model.key]} / {text}"
            texts[model.key] = text
        columns[f"{name} at {multiple} L"] = texts
    return columns


def accuracy_table(measurements: Sequence[ProbeMeasurement]) -> str:
    """Format the accuracies of a probe in Markdown, below the conditions and above a note.

    The table has a row per model and a column per multiple of the training length L.

    Args:
        measurements: measurements of a probe.
    """
    models = probed_models(measurements)
    distinct_multiples: set[float] = set()
    for model in models:
        distinct_multiples.update(model.accuracies)
    multiples = sorted(distinct_multiples)
    headers = ["trained ↓ tested at →"]
    for multiple in multiples:
        headers.append(f"{multiple:g} L")
    rows = []
    for model in models:
        row = [model.label]
        for multiple in multiples:
            row.append(format_accuracy(model.accuracies.get(multiple)))
        rows.append(row)
    table = markdown.table(headers, rows)
    above = markdown.literal(conditions(group_by_model(measurements)))
    return f"{above}.\n\n{table}\n{_task_note(measurements, models)}"


def _task_note(measurements: Sequence[ProbeMeasurement], models: Sequence[ProbedModel]) -> str:
    """Describe the test sequences of a probe, and state whether no model has learned the task.

    Args:
        measurements: measurements of the probe.
        models: models of these measurements.
    """
    sequences = measurements[0].trials
    chance = measurements[0].chance
    depths = len({measurement.depth for measurement in measurements})
    note = (
        f"Symbols predicted correctly, over {depths} depths of {sequences} sequences "
        f"each; guessing: {100 * chance:.0f}%, which is no lower limit: a model that predicts "
        "other symbols is below it.\n"
    )
    if not is_learned(models):
        note += (
            f"\nNo model predicts {MIN_LEARNED_ACCURACY:.0%} of them at its training length: "
            "none has learned the task, so the table says nothing about position methods.\n"
        )
    return note
