"""Names of methods, models, texts, and machines in tables and figures."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .model import Model
from .record import Measurement, ProbeMeasurement, TextKey
from .results_file import ResultsFile


def model_label(name: str, train_length: int | None) -> str:
    """Return ``ALiBi, L=512``, or the name of the method alone without a training length."""
    if train_length is None:
        return name
    return f"{name}, L={train_length}"


def size_text(layers: int | None, width: int | None) -> str:
    """Return ``3 layers of width 128``, or an empty text if it is unknown."""
    if layers is None or width is None:
        return ""
    unit = "layer" if layers == 1 else "layers"
    return f"{layers} {unit} of width {width}"


def machine_of(results_file: ResultsFile) -> str:
    """Describe the machine of a results file: GPU, or processor and threads, and precision.

    If all records were computed on the CPU, the machine's GPU is left out.
    """
    provenance = results_file.provenance
    hardware = provenance.hardware
    threads = provenance.threads
    devices = {getattr(record, "device", None) for record in results_file.records}
    gpu = None if devices == {"cpu"} else hardware.gpu
    parts = [gpu or hardware.cpu or "an unknown machine"]
    if gpu is None and threads:
        unit = "thread" if threads == 1 else "threads"
        parts.append(f"{threads} {unit}")
    if provenance.precision:
        parts.append(provenance.precision)
    return ", ".join(parts)


def text_names(texts: Iterable[TextKey]) -> dict[TextKey, str]:
    """Name each text by its differences from other texts of the same split.

    The name of the only text of a split is empty, unless only a range of it is scored.
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
            if len(ranges) > 1 or text.has_range:
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


#: Options of the training that are not flags in the name of a model: tables list learning rates,
#: which are tuned for each method, above the rows, and other facts state the data and the updates.
_NO_FLAGS = {"data", "lr", "max_update", "save_interval_updates", "validate_interval_updates"}
#: The task of a language model, which is always recorded.
_DEFAULT_TASK = ("task", "language_modeling")
#: Options that follow from the number of updates.
_SCHEDULE = {"total_num_update", "warmup_updates"}
#: Options that determine the tokens per update.
_BATCH = {
    "batch_size",
    "distributed_world_size",
    "max_sentences",
    "max_tokens",
    "required_batch_size_multiple",
    "update_freq",
}
#: Names of unknown facts, in the order of :func:`model_facts`. Others are left out if unknown.
_UNKNOWN = {
    1: "unknown architecture",
    2: "unknown size",
    3: "unknown number of updates",
    5: "unknown precision",
    6: "unknown dictionary",
    7: "trained with unknown options",
}


def model_facts(model: Model, flags: Iterable[str] = ()) -> tuple[str, ...]:
    """Describe what is the same for all models of a fair comparison. Unknown facts are empty.

    Args:
        model: the model.
        flags: names of further training options to state.
    """
    options = model.all_options
    data = options.get("data", "")
    own = {}
    for name in flags:
        if name in options and name not in model.method.named_options:
            own[name] = _short_path(options[name])
    return (
        model.label or "",
        model.architecture or "",
        size_text(model.layers, model.width),
        _updates_text(model),
        f"{model.tokens_per_update:,} tokens per update" if model.tokens_per_update else "",
        model.precision or "",
        f"dictionary of {model.vocabulary:,}" if model.vocabulary else "",
        f"trained on {_short_path(data)}" if data else "",
        _flags_text(own),
        "" if model.label else _overrides_text(model),
        f"memory of {model.memory_length:,}" if model.memory_length else "",
    )


class TableNames:
    """Names of the models of one table, which state whatever makes models unequal.

    If rows of a table differ in more than the position method, such as in the number of updates,
    every row states it. Other differences are stated where they distinguish models of one position
    method and training length.

    Attributes:
        flags: training options that make models unequal and are not part of the other facts.
        stated: indices of the facts that differ between models.
    """

    def __init__(self, measurements: Iterable[Measurement | ProbeMeasurement]):
        table = list({(m.model.key, _train_text(m)): m for m in measurements}.values())
        self.flags = self._unequal_flags([measured.model for measured in table])
        self.stated: list[int] = []
        for index, values in enumerate(zip(*map(self._facts, table), strict=True)):
            if len(set(values)) > 1:
                self.stated.append(index)

    @staticmethod
    def _unequal_flags(table: Sequence[Model]) -> list[str]:
        """Return the options that make models unequal, by name."""
        known = [model for model in table if model.options is not None]
        stated = set(_NO_FLAGS)
        if len({model.planned_updates for model in known}) > 1:
            stated |= _SCHEDULE
        if None not in {model.tokens_per_update for model in known}:
            stated |= _BATCH
        return [name for name in _different_options(known) if name not in stated]

    def _facts(self, measured: Measurement | ProbeMeasurement) -> tuple[str, ...]:
        """Return the facts of a measured model, with the size of the training split."""
        return (*model_facts(measured.model, self.flags), _train_text(measured))

    def names_of(self, measurements: Sequence[Measurement | ProbeMeasurement]) -> list[str]:
        """Return the names of the models of one position method and training length.

        Models have different names if they differ in more than the seed.
        """
        descriptions = self._descriptions(measurements)
        num_models = len({measured.model.key for measured in measurements})
        shown = distinguishing_parts(descriptions, num_models, self.stated)
        return [joined(parts[index] for index in shown) for parts in descriptions]

    def _descriptions(
        self, measurements: Sequence[Measurement | ProbeMeasurement]
    ) -> list[tuple[str, ...]]:
        """Describe each model in parts: its facts, and what else distinguishes the models."""
        different = _different_options([measured.model for measured in measurements])
        descriptions = []
        for measured in measurements:
            model = measured.model
            training = "trained with unknown options"
            if model.options is not None:
                options = model.all_options
                own = {name: options[name] for name in different if name in options}
                training = _flags_text(own)
            facts = [
                fact or _UNKNOWN.get(index, "") for index, fact in enumerate(self._facts(measured))
            ]
            rest = (_parameters_text(model), _overrides_text(model), training, _plugin_text(model))
            descriptions.append((*facts, *rest))
        return descriptions


def _train_text(measured: Measurement | ProbeMeasurement) -> str:
    """Return the size of the training split of the data of a measurement; empty if unknown."""
    text = measured.text if isinstance(measured, Measurement) else None
    if text is None or text.train_tokens is None:
        return ""
    return f"{text.train_tokens:,} tokens of training text"


def _different_options(models: Sequence[Model]) -> list[str]:
    """Return the names of the training options that differ between models."""
    all_options = [model.all_options for model in models]
    names = sorted(set().union(*all_options))
    return [name for name in names if len({options.get(name) for options in all_options}) > 1]


def _flags_text(options: Mapping[str, str]) -> str:
    """Return training options as flags. Those with their default are left out."""
    flags = []
    for name, value in options.items():
        if (name, value) != _DEFAULT_TASK:
            flag = "" if name == "data" else f"--{name.replace('_', '-')}"  # data is positional
            flags.append(f"{flag} {value}".strip())
    return ", ".join(flags)


def _short_path(text: str) -> str:
    """Return the last two parts of a path, which name a comparison's data and runs."""
    return "/".join(text.split("/")[-2:])


def _parameters_text(model: Model) -> str:
    """Return the number of parameters of a model, such as ``0.7M parameters``."""
    if model.parameters is None:
        return "unknown number of parameters"
    return f"{model.parameters / 1e6:,.3g}M parameters"


def _plugin_text(model: Model) -> str:
    """Describe the version of the plugin of a model."""
    if model.plugin_sha256 is None:
        return "plugin of unknown version"
    return f"plugin {model.plugin_sha256[:8]}"


def _updates_text(model: Model) -> str:
    """Describe the update count of a model, which differs between seeds of the best checkpoint."""
    planned = model.planned_updates
    if model.is_best_checkpoint:
        return "best checkpoint" + (f" of {planned:,} updates" if planned else "")
    if model.updates is None:
        return ""
    if planned in (None, model.updates):
        return f"{model.updates:,} updates"
    return f"{model.updates:,} of {planned:,} updates"


def _overrides_text(model: Model) -> str:
    """Describe the options that were changed for the evaluation."""
    overrides = sorted((model.overrides or {}).items())
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in overrides)


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
            f"{model.updates:,} updates" if model.updates is not None else "unknown updates",
            f"checkpoint hash {(model.checkpoint_sha256 or 'unknown')[:8]}",
        )
        descriptions.setdefault(model.run_key, description)
    shown = distinguishing_parts(list(descriptions.values()), len(descriptions))
    names = {}
    for run, parts in descriptions.items():
        names[run] = joined(parts[index] for index in shown)
    return names
