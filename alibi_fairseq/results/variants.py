"""Variants: models of one position method and training length, named by their differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from .labels import size_text
from .record import Model
from .seeds import AnyMeasurement, are_seeds


def split_variants(measurements: list[AnyMeasurement]) -> dict[str, list[AnyMeasurement]]:
    """Group measurements of one method and training length by model, and name the differences.

    Returns:
        The measurements of each model by name, in alphabetical order. A single model has an empty
        name.
    """
    models = [measurement.model for measurement in measurements]
    descriptions = _descriptions(models)
    num_models = len({model.key for model in models})
    has_labels = any(model.label for model in models)
    # The first part, which labels evaluations with overridden options, is always shown.
    shown = _distinguishing_parts(descriptions, num_models, [0] if has_labels else [])
    by_name: dict[str, list[AnyMeasurement]] = defaultdict(list)
    for measurement, parts in zip(measurements, descriptions, strict=True):
        name = _joined(parts[index] for index in shown)
        by_name[name].append(measurement)
    by_name = _split_by_exact_size(by_name)
    variants: dict[str, list[AnyMeasurement]] = defaultdict(list)
    for name, members in by_name.items():
        if are_seeds(members):
            variants[name] += members
            continue
        # They may not be seeds of one model on one text, so they are not averaged.
        run_names = _run_names(member.model for member in members)
        for measurement in members:
            run_name = run_names[measurement.model.run_key]
            variants[_joined([name, run_name])].append(measurement)
    return dict(sorted(variants.items()))


def _split_by_exact_size(
    by_name: dict[str, list[AnyMeasurement]],
) -> dict[str, list[AnyMeasurement]]:
    """Add the number of parameters to the names that models of different sizes share.

    Names contain rounded numbers.
    """
    split: dict[str, list[AnyMeasurement]] = defaultdict(list)
    for name, members in by_name.items():
        sizes = {member.model.parameters for member in members}
        if len(sizes) == 1:
            split[name] += members
            continue
        for member in members:
            size = "of unknown size"
            if member.model.parameters is not None:
                size = f"{member.model.parameters:,} parameters"
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


def _descriptions(models: Sequence[Model]) -> list[tuple[str, ...]]:
    """Describe each model in parts, the most readable part first."""
    descriptions: list[tuple[str, ...]] = []
    for model, training in zip(models, _training_texts(models), strict=True):
        descriptions.append(
            (
                model.label or "",
                size_text(model.layers, model.width, model.parameters) or "of unknown size",
                _updates_text(model),
                str(model.precision),
                model.overrides_text or "as trained",
                f"memory of {model.memory_length or 0}",
                model.architecture or "of unknown architecture",
                f"dictionary of {model.vocabulary or 'unknown size'}",
                training,
                _plugin_text(model),
            )
        )
    return descriptions


def _training_texts(models: Sequence[Model]) -> list[str]:
    """Return the training options of each model that differ between the models, as flags."""
    all_options = [model.options or {} for model in models]
    names: set[str] = set()
    for options in all_options:
        names.update(options)
    different = []
    for name in sorted(names, key=lambda name: (name != "data", name)):
        if len({options.get(name) for options in all_options}) > 1:
            different.append(name)
    texts = []
    for model in models:
        if model.options is None:
            texts.append("trained with unknown options")
            continue
        parts = []
        for name in different:
            if name in model.options:
                # The data folder is the positional argument.
                flag = "" if name == "data" else "--" + name.replace("_", "-")
                parts.append(f"{flag} {model.options[name]}".strip())
        texts.append(", ".join(parts))
    return texts


def _plugin_text(model: Model) -> str:
    """Describe the version of the plugin of a model."""
    if model.plugin_sha256 is None:
        return "plugin of unknown version"
    return f"plugin {model.plugin_sha256[:8]}"


def _updates_text(model: Model) -> str:
    """Describe the update count of a model, which differs between seeds of the best checkpoint."""
    if model.is_best_checkpoint:
        return "best checkpoint"
    return f"{model.updates} updates"


def _run_names(models: Iterable[Model]) -> dict[tuple, str]:
    """Name each run of a model by its differences from the other runs.

    Returns:
        The name of each run by its key. The name of the only run is empty.
    """
    descriptions: dict[tuple, tuple[str, ...]] = {}
    for model in models:
        seed = "unknown seed" if model.seed is None else f"seed {model.seed}"
        description = (
            model.checkpoint or "unnamed",
            seed,
            f"{model.updates} updates",
            f"checkpoint hash {(model.checkpoint_sha256 or 'unknown')[:8]}",
        )
        descriptions.setdefault(model.run_key, description)
    shown = _distinguishing_parts(list(descriptions.values()), len(descriptions))
    names = {}
    for run, parts in descriptions.items():
        names[run] = _joined(parts[index] for index in shown)
    return names
