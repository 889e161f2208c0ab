"""Time and memory of trainings, from their records."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from ..results.file import load
from ..results.files import TRAINING_FILE
from ..results.provenance import Hardware
from . import markdown
from .table import Column, RowType, Table

CAPTION = """\
Cost of training, as means over seeds. "At a time" is the mean number of these models in training
at once, according to the recorded times. Speeds are comparable only if this number is the same and
the machine did nothing else:"""

#: Headers of the cells of :func:`cost_cells`.
COST_HEADERS = ("minutes", "tokens/s", "memory", "at a time")


@dataclass(frozen=True)
class TrainingCost:
    """Time and memory of the training of one model.

    Attributes:
        model: what is the same for all seeds of the model.
        hours: duration over all sessions, with validation and saving.
        tokens_per_second: speed of the updates.
        peak_memory_mb: memory of the process; on a GPU, of its allocations.
        processor: name of the GPU, or of the processor without one.
        begin: begin of the training, if it was not interrupted.
        end: time of the last validation.
    """

    model: Hashable
    hours: float
    tokens_per_second: float
    peak_memory_mb: float | None
    processor: str
    begin: datetime
    end: datetime


def read_training_cost(model: Hashable, folder: Path) -> TrainingCost:
    """Read the cost of a finished training from its save folder."""
    training = load(folder / TRAINING_FILE)
    assert training.provenance is not None, "a training records it"
    cost = training.results[-1].cost
    hours = (cost.seconds or 0.0) / 3600
    end = datetime.fromisoformat(training.provenance.date.replace("Z", "+00:00"))
    return TrainingCost(
        model=model,
        hours=hours,
        tokens_per_second=cost.tokens_per_second or 0.0,
        peak_memory_mb=cost.peak_memory_mb,
        processor=processor_name(training.provenance.hardware),
        begin=end - timedelta(hours=hours),
        end=end,
    )


def trainings_at_a_time(costs: Iterable[TrainingCost], model: Hashable) -> float:
    """Return the mean number of models in training while one model was trained.

    The mean is over the seeds of the model, and each counts itself. Trainings on the same kind
    of processor count as trainings on one machine. The value is 1 if no two of them overlap.

    Args:
        costs: costs of all models that may share a machine.
        model: the model, as in the costs.
    """
    costs = list(costs)
    trainings = 0.0
    total = 0.0
    for cost in costs:
        if cost.model != model:
            continue
        for other in costs:
            if other.processor != cost.processor:
                continue
            overlap = min(cost.end, other.end) - max(cost.begin, other.begin)
            trainings += max(overlap.total_seconds(), 0.0)
        total += (cost.end - cost.begin).total_seconds()
    return trainings / total


def cost_cells(costs: Sequence[TrainingCost], model: Hashable) -> list[str]:
    """Format minutes, speed, memory, and trainings at a time of a model, as means over seeds."""
    of_model = [cost for cost in costs if cost.model == model]
    hours = statistics.mean(cost.hours for cost in of_model)
    if not hours:  # not recorded
        return [markdown.NOTHING] * len(COST_HEADERS)
    speed = statistics.mean(cost.tokens_per_second for cost in of_model)
    memory = markdown.NOTHING
    peaks = [cost.peak_memory_mb for cost in of_model if cost.peak_memory_mb is not None]
    if peaks:
        memory = f"{statistics.mean(peaks) / 1000:.2f} GB"
    at_a_time = trainings_at_a_time(costs, model)
    return [f"{60 * hours:.1f}", markdown.thousands(speed), memory, f"{at_a_time:.1f}"]


def cost_columns(
    costs: Sequence[TrainingCost], model: Callable[[RowType], Hashable]
) -> list[Column[RowType]]:
    """Return the columns of the costs of training.

    Args:
        costs: costs of all models that may share a machine.
        model: function that returns the model of a row, as in the costs.
    """
    columns = []
    for index, title in enumerate(COST_HEADERS):
        columns.append(Column(title, partial(_cost_cell, costs, model, index)))
    return columns


def _cost_cell(
    costs: Sequence[TrainingCost],
    model: Callable[[RowType], Hashable],
    index: int,
    row: RowType,
) -> str:
    """Return one of the costs of a row's model."""
    return cost_cells(costs, model(row))[index]


def cost_table(costs: Sequence[TrainingCost]) -> str:
    """Return a Markdown table of the costs of models, whose names are those in the costs."""
    models = list(dict.fromkeys(cost.model for cost in costs))
    columns = [Column[Hashable]("", str), *cost_columns(costs, lambda model: model)]
    return f"{CAPTION}\n\n{markdown.to_markdown([Table(columns, models)]).rstrip()}"


def processor_name(hardware: Hardware) -> str:
    """Return the name of the GPU, or of the processor if there was none."""
    if hardware.gpu:
        return hardware.gpu
    if not hardware.cpu_family:
        return str(hardware.cpu)
    return f"{hardware.cpu} (family {hardware.cpu_family}, model {hardware.cpu_model})"
