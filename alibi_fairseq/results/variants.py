"""Variants: models of one position method and training length, named by their differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

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
    num_models = len({measurement.identity(Role.MODEL) for measurement in measurements})
    has_labels = any(measurement.label for measurement in measurements)
    # The first part, which labels evaluations with overridden options, is always shown.
    shown = _distinguishing_parts(descriptions, num_models, [0] if has_labels else [])
    by_name: dict[str, list[Measurement]] = defaultdict(list)
    for measurement, parts in zip(measurements, descriptions, strict=True):
        name = _joined(parts[index] for index in shown)
        by_name[name].append(measurement)
    by_name = _split_by_exact_size(by_name)
    variants: dict[str, list[Measurement]] = defaultdict(list)
    for name, members in by_name.items():
        if are_seeds(members):
            variants[name] += members
            continue
        # They may not be seeds of one model on one text, so they are not averaged.
        run_names = _run_names(members)
        for measurement in members:
            run_name = run_names[measurement.identity(Role.RUN)]
            variants[_joined([name, run_name])].append(measurement)
    return dict(sorted(variants.items()))


def _split_by_exact_size(by_name: dict[str, list[Measurement]]) -> dict[str, list[Measurement]]:
    """Add the number of parameters to the names that models of different sizes share.

    Names contain rounded numbers.
    """
    split: dict[str, list[Measurement]] = defaultdict(list)
    for name, members in by_name.items():
        sizes = {member.parameters for member in members}
        if len(sizes) == 1:
            split[name] += members
            continue
        for member in members:
            size = "of unknown size"
            if member.parameters is not None:
                size = f"{member.parameters:,} parameters"
            split[_joined([name, size])].append(member)
    return split


def _joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty."""
    return ", ".join(part for part in parts if part)


def _distinguishing_parts(
    descriptions: Sequence[tuple[str, ...]], num_names: int, always_shown: Sequence[int] = ()
) -> list[int]:
    """Return the indices of the parts of descriptions that distinguish models, or runs.

    Parts are added in order until there are enough different names.

    Args:
        descriptions: description of each model or run in parts.
        num_names: number of different models or runs.
        always_shown: indices of parts that are shown in any case.
    """
    shown = list(always_shown)
    for index, values in enumerate(zip(*descriptions, strict=True)):
        names = {tuple(parts[i] for i in shown) for parts in descriptions}
        is_needed = len(names) < num_names and len(set(values)) > 1
        if is_needed and index not in shown:
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
                _plugin_text(measurement),
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


def _plugin_text(measurement: Measurement) -> str:
    """Describe the version of the plugin of a model."""
    if measurement.plugin_sha256 is None:
        return "plugin of unknown version"
    return f"plugin {measurement.plugin_sha256[:8]}"


def _updates_text(measurement: Measurement) -> str:
    """Describe the update count of a model, which differs between seeds of the best checkpoint."""
    if is_best_checkpoint(measurement.checkpoint):
        return "best checkpoint"
    return f"{measurement.updates} updates"


def _run_names(members: Iterable[Measurement]) -> dict[tuple, str]:
    """Name each run of a model by its differences from the other runs.

    Returns:
        The name of each run by its identity. The name of the only run is empty.
    """
    descriptions: dict[tuple, tuple[str, ...]] = {}
    for member in members:
        seed = "unknown seed" if member.seed is None else f"seed {member.seed}"
        description = (
            member.checkpoint or "unnamed",
            seed,
            f"{member.updates} updates",
            f"checkpoint hash {(member.checkpoint_sha256 or 'unknown')[:8]}",
        )
        descriptions.setdefault(member.identity(Role.RUN), description)
    shown = _distinguishing_parts(list(descriptions.values()), len(descriptions))
    names = {}
    for run, parts in descriptions.items():
        names[run] = _joined(parts[index] for index in shown)
    return names
