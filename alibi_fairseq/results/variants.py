"""Variants: models of one position method and training length, named by their differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .identity import Role, is_best_checkpoint
from .labels import size_text
from .measurements import Measurement
from .seeds import are_seeds
from .training_command import model_options


def split_variants(measurements: list[Measurement]) -> dict[str, list[Measurement]]:
    """Group measurements of one method and training length by model, and name the differences.

    Returns:
        The measurements of each model by name, in alphabetical order. A single model has an empty
        name.
    """
    descriptions = _descriptions(measurements)
    shown = _distinguishing_parts(measurements, descriptions)
    by_name: dict[str, list[Measurement]] = defaultdict(list)
    for measurement, parts in zip(measurements, descriptions, strict=True):
        name = _joined(parts[index] for index in shown)
        by_name[name].append(measurement)
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for name, members in by_name.items():
        if are_seeds(members):
            variants[name] += members
            continue
        # They may not be seeds of one model on one text, so they are not averaged.
        for measurement in members:
            run = _run_name(measurement, members)
            variants[_joined([name, run])].append(measurement)
    return dict(sorted(variants.items()))


def _joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty."""
    return ", ".join(part for part in parts if part)


def _distinguishing_parts(
    measurements: list[Measurement], descriptions: list[tuple[str, ...]]
) -> list[int]:
    """Return the indices of the parts of descriptions that distinguish the models.

    Parts are added in order until the models have different names. The first part, which labels
    evaluations with overridden options, is always shown unless it is empty.
    """
    num_models = len({measurement.identity(Role.MODEL) for measurement in measurements})
    shown: list[int] = []
    for index, values in enumerate(zip(*descriptions, strict=True)):
        names = {tuple(parts[i] for i in shown) for parts in descriptions}
        is_label = index == 0 and set(values) != {""}
        is_needed = len(names) < num_models and len(set(values)) > 1
        if is_label or is_needed:
            shown.append(index)
    return shown


def _descriptions(measurements: list[Measurement]) -> list[tuple[str, ...]]:
    """Describe the model of each measurement in parts, the most readable part first."""
    descriptions: list[tuple[str, ...]] = []
    for measurement, training in zip(measurements, _training_texts(measurements), strict=True):
        size = size_text(measurement.layers, measurement.width, measurement.parameters)
        descriptions.append(
            (
                measurement.label or "",
                size or "of unknown size",
                _updates_text(measurement),
                str(measurement.precision),
                measurement.model_overrides or "as trained",
                f"memory of {measurement.memory_length or 0}",
                measurement.model or "of unknown architecture",
                f"dictionary of {measurement.vocabulary or 'unknown size'}",
                f"lr {measurement.lr or 'unknown'}",
                training,
            )
        )
    return descriptions


def _training_texts(measurements: list[Measurement]) -> list[str]:
    """Return the training options of each measurement's model that differ between the models."""
    all_options = [
        dict(model_options(measurement.train_command or "")) for measurement in measurements
    ]
    names: set[str] = set()
    for options in all_options:
        names.update(options)
    different = []
    for name in sorted(names):
        if len({options.get(name) for options in all_options}) > 1:
            different.append(name)
    texts = []
    for measurement, options in zip(measurements, all_options, strict=True):
        if not measurement.train_command:
            texts.append("trained by an unknown command")
            continue
        parts = []
        for name in different:
            if name in options:
                parts.append(f"{name} {options[name]}".strip())
        texts.append(", ".join(parts))
    return texts


def _updates_text(measurement: Measurement) -> str:
    """Describe the update count of a model, which differs between seeds of the best checkpoint."""
    if is_best_checkpoint(measurement.checkpoint):
        return "best checkpoint"
    return f"{measurement.updates} updates"


def _run_name(measurement: Measurement, members: list[Measurement]) -> str:
    """Return the difference of a run from the other runs of its model."""
    checkpoints = {member.checkpoint for member in members}
    runs = {member.identity(Role.RUN) for member in members}
    parts = []
    if len(checkpoints) > 1:
        parts.append(measurement.checkpoint or "unnamed")
    if len(checkpoints) != len(runs):  # some runs have checkpoints of the same name
        parts.append("unknown seed" if measurement.seed is None else f"seed {measurement.seed}")
    return ", ".join(parts)
