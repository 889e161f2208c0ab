"""Results files of version 3 as results of today, in memory.

Records of version 3 have options that differ from their default, as text, by the name of their
field. They know the training data by its path only. ``cell.json`` next to a study's results has the
hash of it, and ``training.json`` the command, the number of processes, and the position method
before any override. Whatever is missing, such a result equals only results that lack it as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import read_json
from ..positions.spec import cycle_over_layers, layer_windows
from .case import Case
from .files import TRAINING_FILE, load_results_file
from .model import Model
from .record import Measurement, ProbeMeasurement, Validation
from .result import Cost, ProbeValues, Result, TextSummary, TextValues
from .results_file import EvaluationFile, ProbeFile, Provenance, ResultsFile, TrainingFile
from .series import Facts, Reading, Series, read_series
from .settings import (
    COMPONENTS,
    DEFAULTS,
    GROUPS,
    Settings,
    component_defaults,
    plain,
    selection,
)
from .training_settings import method_json

#: File next to the results of a study's model, with the hash of its training data.
MODEL_FILE = "cell.json"
#: Options that version 3 recorded under another name than the field, or not as an option.
_ALIASES = {"max_sentences": "batch_size", "arch": "model"}
#: Options of the command that version 3 left out of records: the first because its default is a
#: reference, the second in early records.
_UNRECORDED = ("total_num_update", "criterion")


@dataclass(frozen=True)
class _Training:
    """What the files next to a results file say about the training of its models.

    Attributes:
        train: hash of ``train.bin``; None if unknown.
        dictionary: hash of the dictionary's symbols; None if unknown.
        valid: hash of each validation split that is known.
        options: options of the training command that records lack.
        method: position method as trained; None if unknown.
        processes: number of processes; None if unknown.
        diverged_at: last validation, if its loss is not finite.
        series: series that the training recorded; None: an earlier release.
    """

    train: str | None = None
    dictionary: str | None = None
    valid: Mapping[str, str] | None = None
    options: Mapping[str, str] | None = None
    method: Mapping[str, Any] | None = None
    processes: int | None = None
    diverged_at: Validation | None = None
    series: Series | None = None


def load_version_3(path: Path) -> list[Result]:
    """Read a results file of version 3, and the files next to it.

    Raises:
        UserInputError: as :func:`.files.load_results_file`.
    """
    return upgraded(load_results_file(path), path.parent)


def upgraded(results: ResultsFile, folder: Path) -> list[Result]:
    """Return the results of a results file of version 3; none of benchmarks.

    Args:
        results: content of the file.
        folder: folder of the file.
    """
    if not isinstance(results, EvaluationFile | ProbeFile | TrainingFile):
        return []
    training = _training_in(folder, results)
    series_of_checkpoints = _series_of_checkpoints(results, training)
    upgraded_results = []
    for record in results.records:
        model = record.model
        series = series_of_checkpoints.get(model.checkpoint_sha256)
        if series is None:
            series = _recorded_series(results, model, training) or _series_of(model, training)
        upgraded_results.append(_result_of(record, series, training))
    return upgraded_results


def validations_of_version_3(records: Iterable[dict], series: Series) -> list[Result]:
    """Return the validations in a checkpoint of an earlier release.

    Args:
        records: JSON values of the records.
        series: how the model is trained.
    """
    training = _Training(valid=series.settings.get("data.valid"))
    return [_result_of(Validation(**record), series, training) for record in records]


def _series_of_checkpoints(results: ResultsFile, training: _Training) -> dict[str | None, Series]:
    """Return the series of each checkpoint whose hash is known, which all of its records share.

    A record without overrides describes the method as trained.
    """
    series: dict[str | None, Series] = {}
    for record in sorted(results.records, key=lambda record: bool(record.model.overrides)):
        model = record.model
        sha256 = model.checkpoint_sha256
        if sha256 is not None and sha256 not in series:
            recorded = _recorded_series(results, model, training)
            series[sha256] = recorded or _series_of(model, training)
    return series


def _recorded_series(results: ResultsFile, model: Model, training: _Training) -> Series | None:
    """Return the series that the file, or the training next to it, recorded; None without one."""
    if isinstance(results, TrainingFile):
        return results.own_series
    series = results.series.get(model.checkpoint_sha256 or "")
    return series or training.series


def _training_in(folder: Path, results: ResultsFile) -> _Training:
    """Return what the files of a folder say about the training of the models of its results."""
    train = None
    if (folder / MODEL_FILE).is_file():
        data = read_json(folder / MODEL_FILE)["settings"].get("data", {})
        train = data.get("train.bin")
    dictionary = results.provenance.dictionary_sha256
    training = results if isinstance(results, TrainingFile) else None
    if training is None and (folder / TRAINING_FILE).is_file():
        content = read_json(folder / TRAINING_FILE)
        if content.get("version") != 3:
            series = content["series"][content["results"][-1]["series"]]
            source = str(folder / TRAINING_FILE)
            return _Training(train, dictionary, series=read_series(series, source))
        loaded = load_results_file(folder / TRAINING_FILE)
        training = loaded if isinstance(loaded, TrainingFile) else None
    if training is None or not training.records:
        return _Training(train=train, dictionary=dictionary)
    last = training.records[-1]
    subsets = {record.subset for record in training.records}
    valid = {}
    if training.own_series is not None:
        valid = training.own_series.settings.get("data.valid", {})
    elif len(subsets) == 1 and training.provenance.data_sha256 is not None:
        valid[subsets.pop()] = training.provenance.data_sha256
    return _Training(
        train=train,
        dictionary=dictionary,
        valid=valid,
        options=_command_options(training.provenance),
        method=method_json(last.model.method),
        processes=last.processes,
        diverged_at=last if last.loss_bits is None else None,
        series=training.own_series,
    )


def _command_options(provenance: Provenance) -> dict[str, str]:
    """Return the options of a training command that records lack."""
    try:
        words = shlex.split(provenance.command)
    except ValueError:
        return {}
    options = options_of_words(words)
    return {name: options[name] for name in _UNRECORDED if name in options}


def options_of_words(words: Iterable[str]) -> dict[str, str]:
    """Return the options of a command by field, as text; a flag without a value is empty."""
    options: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").replace("-", "_").partition("=")
            name = _ALIASES.get(name, name)
            options[name] = value
        elif name:
            options[name] = word
            name = ""
    return options


def _series_of(model: Model, training: _Training) -> Series:
    """Return the series of a model of version 3."""
    facts = Facts(
        architecture=model.architecture,
        parameters=model.parameters,
        layers=model.layers,
        width=model.width,
        vocabulary=model.vocabulary,
        memory_length=model.memory_length,
    )
    settings: dict[str, Any] = {"task.tokens_per_sample": model.train_length}
    if model.options is None:
        settings["method"] = _without_overrides(model)
        settings["weights"] = model.weights_sha256 or model.checkpoint_sha256 or model.checkpoint
        return Series(settings, facts=facts)
    options = {**(training.options or {}), **model.options}
    settings |= settings_from_text(options, model.architecture)
    settings["method"] = training.method or _without_overrides(model)
    if training.method is None and model.overrides:
        settings["method_options_unknown"] = sorted(model.overrides)
    if model.plugin_sha256 is not None:
        settings["plugin"] = model.plugin_sha256
    if training.processes is not None:
        settings["processes"] = training.processes
    settings |= _data_settings(training, options.get("data", ""))
    if training.train is None and model.parameters is not None:
        # Data that was prepared again at the same path, with another dictionary.
        settings["parameters"] = model.parameters
    return Series(settings, facts=facts)


def _data_settings(training: _Training, path: str) -> dict[str, Any]:
    """Return the settings of the data, whose path counts if its hash is unknown."""
    settings: dict[str, Any] = {}
    if training.train is None:
        settings["data"] = path
        return settings
    settings["data.train"] = training.train
    if training.dictionary is not None:
        settings["data.dictionary"] = training.dictionary
    if training.valid:
        settings["data.valid"] = dict(training.valid)
    return settings


def settings_from_text(options: Mapping[str, str], architecture: str | None) -> dict[str, Any]:
    """Return options as text, by the name of their field, as settings.

    Args:
        options: the options; names of components are those of their groups.
        architecture: name of the architecture; None: of ``options``.
    """
    settings: dict[str, Any] = {}
    for group in COMPONENTS:
        if group in options:
            settings[group] = options[group]
    if architecture is not None:
        settings["model"] = architecture
    for name, text in options.items():
        if name == "distributed_world_size":
            settings["processes"] = plain(text)
        elif name not in COMPONENTS and name != "data":
            settings[_setting_name(name, settings)] = _value_of(text)
    return settings


def _value_of(text: str) -> Any:
    """Return the value of an option that is text in version 3, where a set flag is empty."""
    known = {"": True, "True": True, "False": False, "None": None}
    return known[text] if text in known else plain(text)


def _setting_name(field: str, components: Settings) -> str:
    """Return the name of the setting of a field, which version 3 recorded without its group.

    Several groups may have a field, but only one of them other than as a reference to it.
    """
    found = ""
    for group in (*GROUPS, *COMPONENTS):
        if group in COMPONENTS:
            defaults = component_defaults(group, components.get(group))
        else:
            defaults = DEFAULTS[group]
        if field in defaults:
            if not str(defaults[field]).startswith("${"):
                return f"{group}.{field}"
            found = found or f"{group}.{field}"
    return found or _UNLISTED.get(field, f"model.{field}")


#: Groups of options that the table of defaults lacks, because new results record them otherwise.
_UNLISTED = {
    "finetune_from_model": "start.finetune_from_model",
    "restore_file": "start.restore_file",
    "continue_once": "start.continue_once",
}


def _without_overrides(model: Model) -> dict[str, Any]:
    """Return the method of a model without overridden options, whose values are unknown."""
    overrides = model.overrides or {}
    layers = []
    for layer in model.method.layers:
        options = {name: value for name, value in layer.options.items() if name not in overrides}
        window = 0 if "attention_window" in overrides else layer.window
        layers.append(replace(layer, options=options, window=window))
    return method_json(replace(model.method, layers=tuple(layers)))


def _reading_of(model: Model, settings: Settings) -> Reading:
    """Return the reading of a model of version 3.

    A model that was evaluated with another version of its plugin is another reading.
    """
    is_best = model.is_best_checkpoint
    overrides = dict(model.overrides or {})
    if model.plugin_sha256 != settings.get("plugin"):
        overrides["plugin"] = model.plugin_sha256
    return Reading(
        at="best" if is_best else model.updates,
        selection=selection(settings) if is_best else None,
        overrides=overrides,
        precision=model.precision or "fp32",
        variant=model.label or "",
    )


def _result_of(
    record: Measurement | ProbeMeasurement | Validation, series: Series, training: _Training
) -> Result:
    """Return a record of version 3 as a result."""
    model = record.model
    shared: dict[str, Any] = {
        "series": series,
        "reading": _reading_of(model, series.settings),
        "seed": model.seed,
        "checkpoint": model.checkpoint,
        "checkpoint_sha256": model.checkpoint_sha256,
        "updates": model.updates,
    }
    if isinstance(record, Measurement):
        return Result(
            **shared,
            case=_case_of(record),
            values=_text_values(record),
            cost=_text_cost(record),
            text=_text_summary(record),
        )
    if isinstance(record, ProbeMeasurement):
        case = Case(
            "probe",
            record.data_sha256,
            "",
            record.length,
            record.length,
            depth=record.depth,
            corpus=record.corpus or "",
        )
        probe = ProbeValues(record.accuracy, record.gap, record.trials, record.chance)
        return Result(**shared, case=case, values=probe, cost=Cost(device=record.device))
    values = None
    if record.loss_bits is not None:
        values = TextValues(record.loss_bits, record.tokens)
    return Result(
        **shared,
        case=_validation_case(record, training),
        values=values,
        status="diverged" if record is training.diverged_at else "",
        cost=_training_cost(record),
    )


def _case_of(record: Measurement) -> Case:
    """Return the case of an evaluation on a text.

    Boundaries of documents matter only if a range of each document is scored, or if the documents
    of a raw text were tokenized one by one. Those of a raw text are recorded as positions in its
    tokens, which differ between tokenizers, so their rule counts instead.
    """
    documents = None
    if record.is_raw_text:
        documents = record.documents
    elif record.text_key.has_range:
        documents = record.documents_sha256 or record.documents
    return Case(
        kind="text",
        text=record.split_sha256 or record.data_sha256,
        split=record.subset,
        length=record.length,
        stride=record.stride,
        documents=documents,
        score_from=record.score_from or 0,
        score_to=record.score_to,
        tokens=record.tokens_sha256,
        corpus=record.corpus or "",
        separator=record.documents or "",
    )


def _boundaries(record: Measurement) -> str | None:
    """Return the boundaries of the documents, as in :class:`.Case`."""
    return record.documents_sha256 or record.documents


def _validation_case(record: Validation, training: _Training) -> Case:
    """Return the case of a validation during a training."""
    length = record.length or record.model.train_length
    text = (training.valid or {}).get(record.subset)
    return Case("validation", text, record.subset, length, length)


def _text_values(record: Measurement) -> TextValues | None:
    """Return the loss of an evaluation on a text."""
    if record.loss_bits is None:
        return None
    return TextValues(
        loss_bits=record.loss_bits,
        tokens=record.tokens,
        words=record.words,
        bytes=record.bytes,
        unigram_bits=record.unigram_bits,
        documents=_boundaries(record) if record.document_bits else None,
        document_tokens=tuple(record.document_tokens),
        document_bits=tuple(record.document_bits),
        position_ends=tuple(record.position_ends),
        position_tokens=tuple(record.position_tokens),
        position_bits=tuple(record.position_bits),
        position_errors=tuple(record.position_errors),
        longest_window=record.longest_window,
        min_context=record.min_context,
        mean_context=record.mean_context,
    )


def _text_cost(record: Measurement) -> Cost:
    """Return time and memory of an evaluation on a text."""
    return Cost(
        device=record.device,
        seconds=record.seconds,
        tokens_per_second=record.tokens_per_second,
        tokens_per_second_batch_1=record.tokens_per_second_batch_1,
        windows_per_batch=record.windows_per_batch,
        peak_memory_mb=record.peak_memory_mb,
    )


def _text_summary(record: Measurement) -> TextSummary:
    """Return tokenizer and sizes of the text of an evaluation."""
    if record.text is None:
        return TextSummary()
    return TextSummary(**record.text.model_dump())


def _training_cost(record: Validation) -> Cost:
    """Return time and memory of a training up to a validation."""
    return Cost(
        device=record.device,
        seconds=None if record.hours is None else record.hours * 3600,
        gpu_seconds=None if record.gpu_hours is None else record.gpu_hours * 3600,
        tokens_per_second=record.tokens_per_second,
        tokens_per_second_per_process=record.tokens_per_second_per_process,
        peak_memory_mb=record.peak_memory_mb,
        processes=record.processes,
        trained_tokens=record.trained_tokens,
    )


def load_tuning(path: Path) -> list[Result]:
    """Read the outcome of learning-rate trials (``MODEL-tuning.json``) as validations.

    A trial has the lowest loss of its validations, on ``valid``. The file names the validation data
    only in later releases.
    """
    content = read_json(path)
    results = []
    for trial, outcome in zip(content["settings"]["trials"], content["result"]["trials"]):
        results.append(_trial_result(trial, outcome))
    return results


def _trial_result(trial: Mapping[str, Any], outcome: Mapping[str, Any]) -> Result:
    """Return a trial of a learning rate as the best validation of its training."""
    options = options_of_words(trial["options"])
    provenance = outcome.get("provenance") or {}
    settings = settings_from_text(_without_method(options), None)
    settings["method"] = _method_of(options, settings["model"])
    settings["data.train"] = trial["train"]
    if provenance.get("dictionary_sha256"):
        settings["data.dictionary"] = provenance["dictionary_sha256"]
    text = provenance.get("data_sha256")
    if text:
        settings["data.valid"] = {"valid": text}
    if trial.get("plugin"):
        settings["plugin"] = trial["plugin"]
    length = int(options["tokens_per_sample"])
    loss = outcome["loss_bits"]
    return Result(
        series=Series(settings),
        reading=Reading("best", selection(settings)),
        seed=int(options["seed"]),
        case=Case("validation", text, "valid", length, length),
        values=None if loss is None else TextValues(loss),
        status="diverged" if loss is None else "",
    )


_METHOD_OPTIONS = ("position_method", "attention_window", "score_scaling")


def _without_method(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a command without those that are part of the method, and the seed."""
    known = {name for defaults in DEFAULTS["method"].values() for name in defaults}
    left_out = {*known, *_METHOD_OPTIONS, "seed"}
    return {name: text for name, text in options.items() if name not in left_out}


def _method_of(options: Mapping[str, str], architecture: str) -> dict[str, Any]:
    """Return the position method of a training command as JSON."""
    num_layers = int(
        options.get("decoder_layers", component_defaults("model", architecture)["decoder_layers"])
    )
    methods = cycle_over_layers(
        "--position-method", options.get("position_method", "alibi"), num_layers
    )
    windows = layer_windows(options.get("attention_window", "0"), num_layers)
    layers: list[dict[str, Any]] = []
    for name, window in zip(methods, windows, strict=True):
        known = DEFAULTS["method"].get(name, {})
        values = {option: options[option] for option in known if option in options}
        layers.append({"name": name, "options": values, "window": window})
    content: dict[str, Any] = {"layers": _repeated_part(layers)}
    content["score_scaling"] = options.get("score_scaling", "none")
    return content


def _repeated_part(layers: Sequence[Any]) -> list[Any]:
    """Return the shortest list that gives the layers when it is repeated."""
    for period in range(1, len(layers)):
        if all(layer == layers[index % period] for index, layer in enumerate(layers)):
            return list(layers[:period])
    return list(layers)
