"""Results files of version 3 as results of today, in memory.

Records of version 3 know the training data by its path only. ``cell.json`` next to a study's
results has the hash of it, and ``training.json`` the command, the number of processes, and the
position method before any override. Whatever is missing, such a result equals only results that
lack it as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import read_json
from .case import Case
from .file_names import MODEL_FILE, TRAINING_FILE
from .options_of_version_3 import command_options, settings_from_text
from .result import Cost, ProbeValues, Result, TextSummary, TextValues
from .series import Facts, Reading, Series
from .settings import Settings, selection
from .training_settings import method_json
from .version_3 import (
    Measurement,
    Model,
    ProbeMeasurement,
    ResultsFile,
    TrainingFile,
    Validation,
    load_results_file,
)


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
    """

    train: str | None = None
    dictionary: str | None = None
    valid: Mapping[str, str] | None = None
    options: Mapping[str, str] | None = None
    method: Mapping[str, Any] | None = None
    processes: int | None = None
    diverged_at: Validation | None = None


def upgraded(results: ResultsFile, folder: Path) -> list[Result]:
    """Return the results of a results file of version 3.

    Args:
        results: content of the file.
        folder: folder of the file.
    """
    training = _training_in(folder, results)
    series_of_checkpoints = _series_of_checkpoints(results, training)
    upgraded_results = []
    for record in results.records:
        model = record.model
        series = series_of_checkpoints.get(model.checkpoint_sha256)
        if series is None:
            series = _upgrade_series(model, training)
        upgraded_results.append(_upgrade_result(record, series, training))
    return upgraded_results


def _series_of_checkpoints(results: ResultsFile, training: _Training) -> dict[str | None, Series]:
    """Return the series of each checkpoint whose hash is known, which all of its records share.

    A record without overrides describes the method as trained.
    """
    series: dict[str | None, Series] = {}
    for record in sorted(results.records, key=lambda record: bool(record.model.overrides)):
        model = record.model
        sha256 = model.checkpoint_sha256
        if sha256 is not None and sha256 not in series:
            series[sha256] = _upgrade_series(model, training)
    return series


def _training_in(folder: Path, results: ResultsFile) -> _Training:
    """Return what the files of a folder say about the training of the models of its results."""
    train = None
    if (folder / MODEL_FILE).is_file():
        data = read_json(folder / MODEL_FILE)["settings"].get("data", {})
        train = data.get("train.bin")
    dictionary = results.provenance.dictionary_sha256
    training = results if isinstance(results, TrainingFile) else None
    if training is None and (folder / TRAINING_FILE).is_file():
        loaded = load_results_file(folder / TRAINING_FILE)
        training = loaded if isinstance(loaded, TrainingFile) else None
    if training is None or not training.records:
        return _Training(train=train, dictionary=dictionary)
    last = training.records[-1]
    subsets = {record.subset for record in training.records}
    valid = {}
    if len(subsets) == 1 and training.provenance.data_sha256 is not None:
        valid[subsets.pop()] = training.provenance.data_sha256
    return _Training(
        train=train,
        dictionary=dictionary,
        valid=valid,
        options=command_options(training.provenance.command),
        method=method_json(last.model.method),
        processes=last.processes,
        diverged_at=last if last.loss_bits is None else None,
    )


def _upgrade_series(model: Model, training: _Training) -> Series:
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


def _without_overrides(model: Model) -> dict[str, Any]:
    """Return the method of a model without overridden options, whose values are unknown."""
    overrides = model.overrides or {}
    layers = []
    for layer in model.method.layers:
        options = {name: value for name, value in layer.options.items() if name not in overrides}
        window = 0 if "attention_window" in overrides else layer.window
        layers.append(replace(layer, options=options, window=window))
    return method_json(replace(model.method, layers=tuple(layers)))


def _upgrade_reading(model: Model, settings: Settings) -> Reading:
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


def _upgrade_result(
    record: Measurement | ProbeMeasurement | Validation, series: Series, training: _Training
) -> Result:
    """Return a record of version 3 as a result."""
    model = record.model
    shared: dict[str, Any] = {
        "series": series,
        "reading": _upgrade_reading(model, series.settings),
        "seed": model.seed,
        "checkpoint": model.checkpoint,
        "checkpoint_sha256": model.checkpoint_sha256,
        "updates": model.updates,
    }
    if isinstance(record, Measurement):
        return Result(
            **shared,
            case=_upgrade_case(record),
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


def _upgrade_case(record: Measurement) -> Case:
    """Return the case of an evaluation on a text.

    Boundaries of documents matter only if a range of each document is scored, or if the documents
    of a raw text were tokenized one by one. Those of a raw text are recorded as positions in its
    tokens, which differ between tokenizers, so their rule counts instead.
    """
    documents = None
    if record.tokens_sha256 is not None:
        documents = record.documents
    elif record.score_from is not None or record.score_to is not None:
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
