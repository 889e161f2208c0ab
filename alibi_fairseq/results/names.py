"""Names of models, runs, texts, and machines in tables and figures."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from .model import BATCH_OPTIONS, OPTIONS_OF_A_SESSION, Model
from .record import Measurement, ProbeMeasurement, TextKey
from .results_file import ResultsFile

#: Texts that describe a model or a run, by the name of the fact. All of a table have equal names.
Facts = dict[str, str]


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
        starts = {(text.scored, text.documents_sha256) for text in same_split}
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
            if len(starts) > len(ranges):
                parts.append(f"documents {(text.documents_sha256 or 'unknown')[:8]}")
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


def distinguishing_facts(
    descriptions: Sequence[Facts], num_names: int, always_shown: Sequence[str] = ()
) -> list[str]:
    """Return the names of the facts that distinguish models, or runs.

    Facts are added in order until there are enough different descriptions.

    Args:
        descriptions: facts of each model or run.
        num_names: number of different models or runs.
        always_shown: names of facts that are shown in any case.
    """
    shown = list(always_shown)
    for name in descriptions[0]:
        if name in shown or not _is_different(name, descriptions):
            continue
        distinguished = {tuple(facts[fact] for fact in shown) for facts in descriptions}
        if len(distinguished) < num_names:
            shown.append(name)
    return shown


def _is_different(name: str, descriptions: Iterable[Facts]) -> bool:
    """Return True if a fact has several values."""
    return len({facts[name] for facts in descriptions}) > 1


#: Options of the training that are not flags in the name of a model: tables list learning rates,
#: which are tuned for each method, above the rows, and other facts state the data and the updates.
_NO_FLAGS = {"lr", *OPTIONS_OF_A_SESSION}
#: The task of a language model, which is always recorded.
_DEFAULT_TASK = ("task", "language_modeling")
#: Options that usually follow from the number of updates.
_SCHEDULE = {"total_num_update", "warmup_updates"}
#: Texts of unknown facts of :func:`model_facts`. Others are left out if unknown.
_UNKNOWN = {
    "architecture": "unknown architecture",
    "size": "unknown size",
    "updates": "unknown number of updates",
    "precision": "unknown precision",
    "dictionary": "unknown dictionary",
    "data": "trained with unknown options",
}


def model_facts(model: Model, flags: Iterable[str] = ()) -> Facts:
    """Return the facts of a model that a fair comparison keeps equal. Unknown facts are empty.

    Args:
        model: the model.
        flags: names of further options of the method and the training to state.
    """
    options = model.method_and_training_options
    data = options.get("data", "")
    own = {}
    for name in flags:
        if name in options and name not in model.method.labeled_options:
            own[name] = _short_path(options[name])
    batch = model.tokens_per_update
    return {
        "label": model.label or "",
        "architecture": model.architecture or "",
        "size": size_text(model.layers, model.width),
        "updates": _updates_text(model),
        "batch": f"{batch:,} tokens per update" if batch else "",
        "precision": model.precision or "",
        "dictionary": f"dictionary of {model.vocabulary:,}" if model.vocabulary else "",
        "data": f"trained on {_short_path(data)}" if data else "",
        "flags": _flags_text(own),
        "overrides": "" if model.label else _overrides_text(model),
        "memory": f"memory of {model.memory_length:,}" if model.memory_length else "",
    }


class TableNames:
    """Names of the models of one table, which state whatever makes models unequal.

    If rows of a table differ in more than the position method, such as in the number of updates,
    every row states it. Other differences are stated where they distinguish models of one position
    method and training length.

    Attributes:
        flags: options of the method and the training that make models unequal, without those that
            other facts state.
        stated: names of the facts that differ between models.
    """

    def __init__(self, measurements: Iterable[Measurement | ProbeMeasurement]):
        by_model: dict[tuple, Measurement | ProbeMeasurement] = {}
        for measured in measurements:
            by_model[measured.model.key, _train_size_text(measured)] = measured
        table = list(by_model.values())
        self.flags = self._unequal_flags([measured.model for measured in table])
        descriptions = [self._facts(measured) for measured in table]
        self.stated: list[str] = []
        for name in descriptions[0] if descriptions else ():
            if _is_different(name, descriptions):
                self.stated.append(name)

    @staticmethod
    def _unequal_flags(table: Sequence[Model]) -> list[str]:
        """Return the options that make models unequal, by name."""
        known = [model for model in table if model.options is not None]
        excluded = set(_NO_FLAGS)
        for name in _SCHEDULE:
            if _follows_updates(name, known):
                excluded.add(name)
        if None not in {model.tokens_per_update for model in known}:
            excluded |= BATCH_OPTIONS
        return [name for name in _different_options(known) if name not in excluded]

    def _facts(self, measured: Measurement | ProbeMeasurement) -> Facts:
        """Return the facts of a measured model, with the size of the training split."""
        facts = model_facts(measured.model, self.flags)
        facts["training text"] = _train_size_text(measured)
        return facts

    def names_of(self, measurements: Sequence[Measurement | ProbeMeasurement]) -> list[str]:
        """Return the names of the models of one position method and training length.

        Models have different names if they differ in more than the seed.
        """
        different = _different_options([measured.model for measured in measurements])
        descriptions = [self._description(measured, different) for measured in measurements]
        models = {(measured.model.key, _train_size_text(measured)) for measured in measurements}
        shown = distinguishing_facts(descriptions, len(models), self.stated)
        return [joined(facts[name] for name in shown) for facts in descriptions]

    def _description(
        self, measured: Measurement | ProbeMeasurement, different: Sequence[str]
    ) -> Facts:
        """Return the facts of a model, and what else distinguishes it from others.

        Args:
            measured: a measurement of the model.
            different: options that differ between the models.
        """
        model = measured.model
        facts = self._facts(measured)
        for name, text in _UNKNOWN.items():
            facts[name] = facts[name] or text
        # Facts that distinguish models if the facts of the whole table do not.
        facts["parameters"] = _parameters_text(model)
        facts["all overrides"] = _overrides_text(model)
        facts["all flags"] = "trained with unknown options"
        if model.options is not None:
            options = model.method_and_training_options
            own = {name: options[name] for name in different if name in options}
            facts["all flags"] = _flags_text(own)
        facts["plugin"] = _plugin_text(model)
        return facts


def _train_size_text(measured: Measurement | ProbeMeasurement) -> str:
    """Return the size of the training split of the data of a measurement; empty if unknown."""
    text = measured.text if isinstance(measured, Measurement) else None
    if text is None or text.train_tokens is None:
        return ""
    return f"{text.train_tokens:,} tokens of training text"


def _different_options(models: Sequence[Model]) -> list[str]:
    """Return the names of the options of the method and the training that differ."""
    all_options = [model.method_and_training_options for model in models]
    different = []
    for name in sorted(set().union(*all_options)):
        values = {options.get(name) for options in all_options}
        if len(values) > 1:
            different.append(name)
    return different


def _follows_updates(option: str, models: Iterable[Model]) -> bool:
    """Return True if models of the same number of updates have the same value of an option."""
    values: dict[int | None, set[str | None]] = defaultdict(set)
    for model in models:
        values[model.planned_updates].add((model.options or {}).get(option))
    return all(len(of_same_updates) == 1 for of_same_updates in values.values())


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
    descriptions: dict[tuple, Facts] = {}
    for model in models:
        updates = "unknown" if model.updates is None else f"{model.updates:,}"
        facts = {
            "checkpoint": model.checkpoint or "unnamed",
            "seed": "unknown seed" if model.seed is None else f"seed {model.seed}",
            "updates": f"{updates} updates",
            "hash": f"checkpoint hash {(model.checkpoint_sha256 or 'unknown')[:8]}",
        }
        descriptions.setdefault(model.checkpoint_key, facts)
    shown = distinguishing_facts(list(descriptions.values()), len(descriptions))
    names = {}
    for run, facts in descriptions.items():
        names[run] = joined(facts[name] for name in shown)
    return names
