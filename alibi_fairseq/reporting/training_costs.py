"""Time and memory of trainings, from their records."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ..results.file import load_training
from ..results.provenance import Hardware
from . import markdown
from .means import mean_of_known
from .table import Column, Table

CAPTION = """\
Cost of training, as means over seeds. "At a time" is the mean number of these models in training
at once, according to the recorded times. Speeds are comparable only if this number is the same and
the machine did nothing else:"""


@dataclass(frozen=True)
class TrainingCost:
    """Time and memory of the training of one seed of a model.

    Attributes:
        model: name of the model, which its seeds share.
        hours: duration over all sessions, with validation and saving.
        tokens_per_second: speed of the updates; None if it is unknown, as after a single update.
        peak_memory_mb: memory of the process; on a GPU, of its allocations.
        processor: name of the GPU, or of the processor without one.
        begin: begin of the training, if it was not interrupted.
        end: time of the last validation.
    """

    model: str
    hours: float
    tokens_per_second: float | None
    peak_memory_mb: float | None
    processor: str
    begin: datetime
    end: datetime


def read_training_cost(model: str, folder: Path) -> TrainingCost:
    """Read the cost of a finished training from its save folder."""
    training = load_training(folder)
    assert training.provenance is not None, "a training records it"
    cost = training.results[-1].cost
    hours = (cost.seconds or 0.0) / 3600
    end = datetime.fromisoformat(training.provenance.date.replace("Z", "+00:00"))
    return TrainingCost(
        model=model,
        hours=hours,
        tokens_per_second=cost.tokens_per_second,
        peak_memory_mb=cost.peak_memory_mb,
        processor=processor_name(training.provenance.hardware),
        begin=end - timedelta(hours=hours),
        end=end,
    )


@dataclass(frozen=True)
class CostRow:
    """Cost of training one model, as means over its seeds. None means not recorded.

    Attributes:
        model: name of the model.
        runs_at_a_time: mean number of models in training at once; 1 if no two of them overlap.
            Runs on one kind of processor count as runs on one machine.
    """

    model: str
    minutes: float | None
    tokens_per_second: float | None
    memory_gb: float | None
    runs_at_a_time: float | None


def cost_rows(costs: Sequence[TrainingCost]) -> list[CostRow]:
    """Return a row for each model, in the order of the costs.

    Args:
        costs: costs of all runs that may share a machine.
    """
    by_model: dict[str, list[TrainingCost]] = defaultdict(list)
    for cost in costs:
        by_model[cost.model].append(cost)
    return [_cost_row(model, of_model, costs) for model, of_model in by_model.items()]


def _cost_row(
    model: str, of_model: Sequence[TrainingCost], costs: Sequence[TrainingCost]
) -> CostRow:
    """Create the row of a model from the costs of its seeds, and those of all runs."""
    hours = statistics.fmean(cost.hours for cost in of_model)
    if not hours:
        return CostRow(model, None, None, None, None)
    peak_memory_mb = mean_of_known(cost.peak_memory_mb for cost in of_model)
    return CostRow(
        model=model,
        minutes=60 * hours,
        tokens_per_second=mean_of_known(cost.tokens_per_second for cost in of_model),
        memory_gb=None if peak_memory_mb is None else peak_memory_mb / 1000,
        runs_at_a_time=_runs_at_a_time(of_model, costs),
    )


def _runs_at_a_time(of_model: Iterable[TrainingCost], costs: Iterable[TrainingCost]) -> float:
    """Return the mean number of runs, each itself included, while the seeds were trained."""
    overlaps = 0.0
    total = 0.0
    for cost in of_model:
        for other in costs:
            if other.processor != cost.processor:
                continue
            overlap = min(cost.end, other.end) - max(cost.begin, other.begin)
            overlaps += max(overlap.total_seconds(), 0.0)
        total += (cost.end - cost.begin).total_seconds()
    return overlaps / total


#: Columns of the table of costs.
COST_COLUMNS = (
    Column[CostRow]("", lambda row: row.model),
    Column[CostRow]("minutes", lambda row: _text("{:.1f}", row.minutes)),
    Column[CostRow]("tokens/s", lambda row: _speed_text(row)),
    Column[CostRow]("memory", lambda row: _text("{:.2f} GB", row.memory_gb)),
    Column[CostRow]("at a time", lambda row: _text("{:.1f}", row.runs_at_a_time)),
)


def _text(text: str, value: float | None) -> str:
    """Format a value; a dash if it was not recorded."""
    return markdown.NOTHING if value is None else text.format(value)


def _speed_text(row: CostRow) -> str:
    """Format the speed of the updates."""
    speed = row.tokens_per_second
    return markdown.NOTHING if speed is None else markdown.thousands(speed)


def cost_table(costs: Sequence[TrainingCost]) -> str:
    """Return a Markdown table of the costs of models, with its caption."""
    table = Table(COST_COLUMNS, cost_rows(costs))
    return f"{CAPTION}\n\n{markdown.to_markdown([table]).rstrip()}"


def processor_name(hardware: Hardware) -> str:
    """Return the name of the GPU, or of the processor if there was none."""
    if hardware.gpu:
        return hardware.gpu
    if not hardware.cpu:
        return "an unknown processor"
    if not hardware.cpu_family:
        return hardware.cpu
    return f"{hardware.cpu} (family {hardware.cpu_family}, model {hardware.cpu_model})"
