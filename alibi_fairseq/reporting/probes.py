"""Tables of the accuracy of probes."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..data.probes import DEPTHS
from ..results.result import Result
from ..results.values import ProbeValues
from . import markdown
from .common_conditions import common_conditions
from .differing_conditions import differing_conditions_table
from .means import standard_deviation
from .row import Row
from .rows import build_rows
from .table import Column, Table

#: Smallest accuracy at the training length of a model that has learned a probe's task. A model that
#: repeats the symbols of a string, or the values of pairs, in any order stays far below it.
MIN_LEARNED_ACCURACY = 0.5


@dataclass(frozen=True)
class ProbedModel:
    """Model tested on a probe, with one or several seeds.

    Attributes:
        row: accuracies by length and depth.
        accuracies: accuracies of the seeds, averaged over depths, by multiple of the training
            length, ascending. Seeds that weren't tested at all depths are left out.
    """

    row: Row
    accuracies: dict[float, list[float]]

    @property
    def label(self) -> str:
        """Name in tables and figures."""
        return self.row.label


def probed_models(results: Iterable[Result]) -> list[ProbedModel]:
    """Return the models of the results of a probe, in table order.

    As in tables of perplexity, only seeds of the same model share a row.
    """
    return [ProbedModel(row, _accuracies(row)) for row in build_rows(results)]


def _accuracies(row: Row) -> dict[float, list[float]]:
    """Return the accuracies of each seed by multiple of the training length.

    They are averaged over depths. An interrupted evaluation lacks depths, and the mean over the
    others would be another quantity.
    """
    by_length: dict[int, list[float]] = defaultdict(list)
    for (length, *_), over_depths in _accuracies_by_depth(row).items():
        of_length = by_length[length]
        if _has_all_depths(over_depths):
            of_length.append(statistics.fmean(over_depths.values()))
    by_multiple = {}
    for length in sorted(by_length):
        multiple = length / (row.train_length or length)
        by_multiple[multiple] = by_length[length]
    return by_multiple


def _accuracies_by_depth(row: Row) -> dict[tuple, dict[float | None, float]]:
    """Return the accuracies of each length and run by depth."""
    by_depth: dict[tuple, dict[float | None, float]] = defaultdict(dict)
    for result in row.results:
        assert isinstance(result.values, ProbeValues)
        length_and_run = (result.case.length, result.seed, result.checkpoint_sha256)
        by_depth[length_and_run][result.case.depth] = result.values.accuracy
    return by_depth


def _has_all_depths(over_depths: Iterable[float | None]) -> bool:
    """Return True if a length was tested at all depths."""
    return set(DEPTHS) <= set(over_depths)


def format_accuracy(values: Sequence[float] | None) -> str:
    """Format the mean over seeds in percent, with the standard deviation of several seeds.

    Args:
        values: accuracies of the seeds; None if the length wasn't tested, and empty if no seed
            was tested at all depths.
    """
    if values is None:
        return markdown.NOTHING
    if not values:
        return markdown.MISSING
    text = f"{100 * statistics.fmean(values):.0f}%"
    deviation = standard_deviation(values)
    return text if deviation is None else f"{text} ± {100 * deviation:.0f}"


def is_learned(models: Sequence[ProbedModel]) -> bool:
    """Return True if any model has learned the task, or none was tested at its training length."""
    at_train_length = []
    for model in models:
        of_seeds = model.accuracies.get(1)
        if of_seeds:
            at_train_length.append(statistics.fmean(of_seeds))
    if not at_train_length:
        return True
    return max(at_train_length) >= MIN_LEARNED_ACCURACY


def accuracy_table(results: Sequence[Result]) -> Table[ProbedModel]:
    """Return the accuracies of a probe.

    The table has a row per model and a column per multiple of the training length L.

    Args:
        results: results of the probe.
    """
    models = probed_models(results)
    rows = [model.row for model in models]
    distinct_multiples: set[float] = set()
    for model in models:
        distinct_multiples.update(model.accuracies)
    columns = [Column[ProbedModel]("trained ↓ tested at →", lambda model: model.label)]
    for multiple in sorted(distinct_multiples):
        columns.append(Column(f"{multiple:g} L", _accuracy_cell(multiple)))
    return Table(
        columns,
        models,
        conditions=common_conditions(rows),
        different=differing_conditions_table(rows),
        notes=_task_notes(results, models),
    )


@dataclass(frozen=True)
class Areas:
    """Areas under the curve of a model's accuracy over the distance, one per seed.

    The distance is the number of fillers in between. An area is divided by the range of the
    distances, so 1 means that all symbols at all of them are predicted.

    Attributes:
        label: name of the model.
        inside: areas over distances up to the training length.
        beyond: areas over longer distances.
    """

    label: str
    inside: Sequence[float]
    beyond: Sequence[float]


def compute_areas(results: Iterable[Result]) -> list[Areas]:
    """Return the areas under the accuracy curves of each model of a probe, in table order.

    Seeds that lack a length of the model, or a depth of one, have no area.
    """
    return [_areas(row) for row in build_rows(results)]


def area_table(results: Iterable[Result]) -> Table[Areas]:
    """Return the areas under the accuracy curves of a probe, a row per model."""
    rows = compute_areas(results)
    columns = [
        Column[Areas]("distance →", lambda areas: areas.label),
        Column[Areas]("up to L", lambda areas: area_text(areas.inside)),
        Column[Areas]("beyond L", lambda areas: area_text(areas.beyond)),
    ]
    caption = "Area under the curve of the accuracy over the distance, of at most 1"
    return Table(columns, rows, caption=caption)


def _areas(row: Row) -> Areas:
    """Return the areas of the seeds of a model that were tested at all depths of all lengths.

    Lengths count at which a seed was tested at all depths. At others, the evaluation was stopped.
    """
    complete_lengths: dict[tuple, set[int]] = defaultdict(set)
    for (length, seed, checkpoint), over_depths in _accuracies_by_depth(row).items():
        if _has_all_depths(over_depths):
            complete_lengths[seed, checkpoint].add(length)
    lengths = set().union(*complete_lengths.values())
    of_runs: dict[tuple, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in row.results:
        assert isinstance(result.values, ProbeValues)
        run = (result.seed, result.checkpoint_sha256)
        if result.case.length in lengths:
            of_runs[run][result.values.gap].append(result.values.accuracy)
    inside = []
    beyond = []
    for run, accuracies in of_runs.items():
        if complete_lengths[run] != lengths:
            continue  # its curve is over other distances
        points = [(gap, statistics.fmean(found)) for gap, found in sorted(accuracies.items())]
        limit = row.train_length or points[-1][0]
        inside += _area([point for point in points if point[0] <= limit])
        beyond += _area([point for point in points if point[0] > limit])
    return Areas(row.label, inside, beyond)


def _area(points: Sequence[tuple[int, float]]) -> list[float]:
    """Return the area under the line through points, divided by their range; none of one point."""
    if len(points) < 2:
        return []
    total = 0.0
    for (left, low), (right, high) in itertools.pairwise(points):
        total += (right - left) * (low + high) / 2
    return [total / (points[-1][0] - points[0][0])]


def area_text(areas: Sequence[float]) -> str:
    """Format the mean area of seeds, with the standard deviation of several."""
    if not areas:
        return markdown.NOTHING
    text = f"{statistics.fmean(areas):.2f}"
    deviation = standard_deviation(areas)
    return text if deviation is None else f"{text} ± {deviation:.2f}"


def _accuracy_cell(multiple: float) -> Callable[[ProbedModel], str]:
    """Return the function that formats the accuracy at a multiple of the training length."""
    return lambda model: format_accuracy(model.accuracies.get(multiple))


def _task_notes(results: Sequence[Result], models: Sequence[ProbedModel]) -> list[str]:
    """Describe the test sequences of a probe, and state whether no model has learned the task."""
    values = results[0].values
    assert isinstance(values, ProbeValues)
    notes = [
        f"Symbols predicted correctly, over {len(DEPTHS)} depths of {values.trials} sequences "
        f"each; guessing: {100 * values.chance:.0f}%, which is no lower limit: a model that "
        "predicts other symbols is below it."
    ]
    if not is_learned(models):
        notes.append(
            f"No model predicts {MIN_LEARNED_ACCURACY:.0%} of them at its training length: "
            "none has learned the task, so the table says nothing about position methods."
        )
    return notes
