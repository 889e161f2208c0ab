"""Time and memory of trainings, from the records of a study's models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from alibi_fairseq.results.files import load_training
from alibi_fairseq.results.results_file import Hardware

from .losses import finished_models


@dataclass(frozen=True)
class TrainingCost:
    """Time and memory of the training of one model.

    Attributes:
        model: corpus, method, and training length.
        hours: duration over all sessions, with validation and saving.
        tokens_per_second: speed of the updates.
        peak_memory_mb: memory of the process; on a GPU, of its allocations.
        processor: name of the GPU, or of the processor without one.
        begin: begin of the training, if it was not interrupted.
        end: time of the last validation.
    """

    model: tuple[str, str, int]
    hours: float
    tokens_per_second: float
    peak_memory_mb: float | None
    processor: str
    begin: datetime
    end: datetime


def load_training_costs(folder: Path) -> list[TrainingCost]:
    """Read the cost of each finished model of a study, in order of name."""
    costs = []
    for model in finished_models(folder):
        training = load_training(model.folder)
        last = training.records[-1]
        hours = last.hours or 0.0
        end = datetime.fromisoformat(training.provenance.date.replace("Z", "+00:00"))
        cost = TrainingCost(
            model=(model.corpus, model.method, model.train_length),
            hours=hours,
            tokens_per_second=last.tokens_per_second or 0.0,
            peak_memory_mb=last.peak_memory_mb,
            processor=processor_name(training.provenance.hardware),
            begin=end - timedelta(hours=hours),
            end=end,
        )
        costs.append(cost)
    return costs


def trainings_at_a_time(costs: Iterable[TrainingCost], model: tuple[str, str, int]) -> float:
    """Return the mean number of a study's models in training while one model was trained.

    The mean is over the seeds of the model, and each counts itself. Trainings on the same kind
    of processor count as trainings on one machine. The value is 1 if no two of them overlap.

    Args:
        costs: costs of all models that may share a machine.
        model: corpus, method, and training length.
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


def processor_name(hardware: Hardware) -> str:
    """Return the name of the GPU, or of the processor if there was none."""
    if hardware.gpu:
        return hardware.gpu
    if not hardware.cpu_family:
        return str(hardware.cpu)
    return f"{hardware.cpu} (family {hardware.cpu_family}, model {hardware.cpu_model})"
