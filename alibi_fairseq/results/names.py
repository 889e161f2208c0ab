"""Names of methods, models, and texts in tables and figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..positions.plugin_sources import plugin_sha256
from ..positions.spec import MethodSpec, method_name
from .record import Model, TextKey


def method_facts(method: MethodSpec) -> dict[str, str]:
    """Return the fields of a result record that name the position method and its version."""
    facts = {"position_method": method.recorded_name}
    plugin = plugin_sha256(method.names)
    if plugin:
        facts["plugin_sha256"] = plugin
    if method.label != method_name(method.recorded_name):
        facts["display_name"] = method.label
    return facts


def model_label(name: str, train_length: int | None) -> str:
    """Return ``ALiBi, L=512``, or the name of the method alone without a training length."""
    if train_length is None:
        return name
    return f"{name}, L={train_length}"


def size_text(layers: int | None, width: int | None, parameters: int | None) -> str:
    """Return ``3 layers of width 128, 0.7M parameters`` as far as known."""
    parts = []
    if layers is not None and width is not None:
        unit = "layer" if layers == 1 else "layers"
        parts.append(f"{layers} {unit} of width {width}")
    if parameters is not None:
        parts.append(f"{parameters / 1e6:,.3g}M parameters")
    return ", ".join(parts)


def text_names(texts: Iterable[TextKey]) -> dict[TextKey, str]:
    """Name each text by its differences from other texts of the same split.

    The name of the only text of a split is empty.
    """
    by_split: dict[str, list[TextKey]] = defaultdict(list)
    for text in dict.fromkeys(texts):
        by_split[text.subset].append(text)
    names = {}
    for same_split in by_split.values():
        counts = {text.tokens for text in same_split}
        tokenizations = {(text.tokens, text.tokens_sha256) for text in same_split}
        sizes = {text.bytes for text in same_split}
        hashes = {text.data_sha256 for text in same_split}
        ranges = {text.scored for text in same_split}
        for text in same_split:
            parts = []
            if len(counts) > 1:
                parts.append(f"{text.tokens or 'unknown'} tokens")
            if len(tokenizations) > len(counts):  # texts of equally many tokens
                parts.append(f"token IDs {(text.tokens_sha256 or 'unknown')[:8]}")
            if len(sizes) > 1:
                parts.append(f"{text.bytes or 'unknown'} bytes")
            if len(hashes) > 1:
                parts.append(f"data {(text.data_sha256 or 'unknown')[:8]}")
            if len(ranges) > 1:
                parts.append(text.scored)
            names[text] = ", ".join(parts)
    return names


def names_across_splits(texts: Iterable[TextKey]) -> dict[TextKey, str]:
    """Name texts like :func:`text_names`, but give all splits of one evaluation the same name.

    Splits that were evaluated together have the same known ``data_sha256``.
    """
    names = text_names(texts)
    ranges = {text.scored for text in names}
    by_evaluation: dict[tuple[str | None, str], list[TextKey]] = defaultdict(list)
    for text in names:
        by_evaluation[text.data_sha256, text.scored].append(text)
    for (data_sha256, scored), members in by_evaluation.items():
        splits = {text.subset for text in members}
        has_names = any(names[text] for text in members)
        if data_sha256 is None or not has_names or len(splits) == 1 or len(splits) < len(members):
            continue
        name = f"data {data_sha256[:8]}"
        if len(ranges) > 1:
            name += f", {scored}"
        for text in members:
            names[text] = name
    return names


def joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty."""
    return ", ".join(part for part in parts if part)


def distinguishing_parts(
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


def model_descriptions(models: Sequence[Model]) -> list[tuple[str, ...]]:
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


def run_names(models: Iterable[Model]) -> dict[tuple, str]:
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
    shown = distinguishing_parts(list(descriptions.values()), len(descriptions))
    names = {}
    for run, parts in descriptions.items():
        names[run] = joined(parts[index] for index in shown)
    return names
