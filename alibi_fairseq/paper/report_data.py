"""Results files loaded for a report, with the measurements that are comparable with the paper's."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserInputError
from ..results.evaluation_groups import names_across_splits
from ..results.files import find_results_files, load_results_file
from ..results.record import (
    BenchmarkFile,
    EvaluationFile,
    Measurement,
    ResultsFile,
    TrainingFile,
    Validation,
)
from . import comparability, published

# Largest relative difference between two perplexities of one measurement in two files.
_PERPLEXITY_TOLERANCE = 1e-3

# Keys of benchmarks, by the name of the quantity in :data:`SpeedsAndMemory`.
_SPEED_KEYS = {
    "train": "tokens_per_second",
    "evaluate": "evaluation_tokens_per_second",
    "memory": "peak_memory_mb",
}

#: Quantities of Table 1 by position method and length: tokens per second of ``train`` and
#: ``evaluate``, MB of ``memory``.
SpeedsAndMemory = Mapping[tuple[str, int], dict[str, float]]


@dataclass
class ReportData:
    """Contents of a report.

    Attributes:
        files: path and content of each results file.
        measurements: every measurement of perplexity once.
    """

    files: list[tuple[Path, ResultsFile]] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)

    def comparable(self, corpus: str) -> list[Measurement]:
        """Return the measurements on a corpus in the paper's setting."""
        return [
            measurement
            for measurement in self.measurements
            if measurement.corpus == corpus
            and comparability.incomparability_reason(measurement) is None
        ]

    def by_text(self, corpus: str) -> Iterator[tuple[str, ReportData]]:
        """Yield the name of each text of a corpus and the results on it.

        The name distinguishes the texts. It is empty if there is only one. Trainings on another
        text are left out.
        """
        model = published.model(corpus)
        texts = []
        for measurement in self.measurements:
            if measurement.corpus == corpus and measurement.model.architecture == model:
                texts.append(measurement.text_key)
        name_by_text = names_across_splits(texts)
        names = sorted(set(name_by_text.values()) - {""})
        for name in names or [""]:
            measurements = []
            for measurement in self.measurements:
                # A text without a name, such as the only one of a split, is part of all results.
                if name_by_text.get(measurement.text_key, "") in ("", name):
                    measurements.append(measurement)
            hashes = set()
            other_hashes = set()
            for text, text_name in name_by_text.items():
                if text_name in ("", name):
                    hashes.add(text.data_sha256)
                else:
                    other_hashes.add(text.data_sha256)
            files = self._without_other_trainings(corpus, hashes, other_hashes - hashes)
            yield name, replace(self, files=files, measurements=measurements)

    def _without_other_trainings(
        self, corpus: str, hashes: set[str | None], other_hashes: set[str | None]
    ) -> list[tuple[Path, ResultsFile]]:
        """Return the files without the trainings on other texts of a corpus.

        The hash of a training's validation data identifies its text. If each evaluation has several
        splits, which are hashed together, no evaluation has this hash. Then the dictionary decides.

        Args:
            corpus: corpus of the text.
            hashes: ``data_sha256`` of the evaluations of the text.
            other_hashes: ``data_sha256`` of the evaluations of all other texts of the corpus.
        """
        dictionaries = set()
        for _, results_file in self.files:
            provenance = results_file.provenance
            if isinstance(results_file, EvaluationFile) and provenance.data_sha256 in hashes:
                dictionaries.add(provenance.dictionary_sha256)
        files = []
        for path, results_file in self.files:
            if isinstance(results_file, TrainingFile) and results_file.corpus == corpus:
                data = results_file.provenance.data_sha256
                dictionary = results_file.provenance.dictionary_sha256
                is_other_dictionary = dictionaries and dictionary not in dictionaries
                if data in other_hashes or (data not in hashes and is_other_dictionary):
                    continue
            files.append((path, results_file))
        return files

    def validations(self, corpus: str) -> list[Validation]:
        """Return the validations of trainings of the paper's model, in order of updates."""
        setting = published.setting_of(corpus)
        assert setting is not None, f"{corpus} is not a corpus of the paper"
        validations = []
        for _, results_file in self.files:
            if not isinstance(results_file, TrainingFile) or results_file.corpus != corpus:
                continue
            for validation in results_file.records:
                model = validation.model
                if validation.subset != "valid" or model.architecture != setting["model"]:
                    continue
                reason = comparability.different_model_reason(setting, model)
                if reason is None and other_batch_reason(corpus, validation) is None:
                    validations.append(validation)
        return sorted(validations, key=lambda validation: validation.updates)

    def speeds(self) -> dict[str, SpeedsAndMemory]:
        """Return the results of ``benchmarks.methods``, sorted by machine, precision, and model.

        Only speeds of the same run are comparable, so each file has separate ones. File names
        distinguish the files of one machine.
        """
        by_machine: dict[str, dict[Path, dict]] = defaultdict(dict)
        for path, results_file in self.files:
            if not isinstance(results_file, BenchmarkFile):
                continue
            machine = machine_of(results_file)
            for record in results_file.records:
                values = record.values
                model = (values.get("position_method"), values.get("length"))
                measured = {name: values.get(key) for name, key in _SPEED_KEYS.items()}
                if None in (*model, *measured.values()):
                    continue  # not a record of Table 1
                by_file = by_machine[f"{machine}, {values.get('model')}"]
                speeds = by_file.setdefault(path, {})
                speeds[model] = measured
        speeds_by_title: dict[str, SpeedsAndMemory] = {}
        for machine, by_file in sorted(by_machine.items()):
            # File names may be equal, but their paths below the common folder are not.
            folder = os.path.commonpath([path.parent for path in by_file])
            for path, speeds in sorted(by_file.items()):
                title = machine
                if len(by_file) > 1:
                    title += f", {path.relative_to(folder)}"
                speeds_by_title[title] = speeds
        return speeds_by_title


def of_longest_training(validations: Sequence[Validation]) -> list[Validation]:
    """Keep the validations of one set of training options per method and training length.

    Trainings whose options differ in more than the seed, such as the learning rate, train different
    models. The options of the validation with the most updates count, and of several such
    validations the options of the first one.

    Args:
        validations: validations of :meth:`ReportData.validations`.
    """
    longest: dict[tuple[str, int], Validation] = {}
    for validation in validations:
        model = model_of(validation)
        if model not in longest or validation.updates > longest[model].updates:
            longest[model] = validation
    return [
        validation
        for validation in validations
        if validation.model.options == longest[model_of(validation)].model.options
    ]


def model_of(record: Measurement | Validation) -> tuple[str, int]:
    """Return position method and training length of the model of a record."""
    return (record.model.position_method, record.model.train_length)


def other_batch_reason(corpus: str, validation: Validation) -> str | None:
    """Return :func:`.comparability.different_batch_reason` of a validation during training."""
    tokens: float | None
    if validation.trained_tokens and validation.updates:
        tokens = validation.trained_tokens / validation.updates
    else:
        tokens = comparability.tokens_per_update(validation.model)
    return comparability.different_batch_reason(corpus, validation.model, tokens)


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


def collect(paths: Iterable[Path]) -> ReportData:
    """Load results files and folders of them (:func:`.find_results_files`).

    Raises:
        UserInputError: A path does not exist, a file violates the schema, or two files contradict
            each other.
    """
    report_data = ReportData()
    first_occurrences: dict[tuple, tuple[Path, Measurement]] = {}
    for path in _files(paths):
        results_file = load_results_file(path)
        report_data.files.append((path, results_file))
        if not isinstance(results_file, EvaluationFile):
            continue
        for measurement in results_file.records:
            if measurement.key in first_occurrences:
                first_path, first = first_occurrences[measurement.key]
                _check_agreement(path, measurement, first_path, first)
            else:
                first_occurrences[measurement.key] = (path, measurement)
                report_data.measurements.append(measurement)
    return report_data


def _check_agreement(
    path: Path, measurement: Measurement, first_path: Path, first: Measurement
) -> None:
    """Check that two files have the same perplexity of one measurement, within the tolerance.

    Args:
        path: file of ``measurement``.
        measurement: measurement in an evaluation.
        first_path: file of ``first``.
        first: the same measurement in another evaluation.

    Raises:
        UserInputError: the perplexities differ.
    """
    assert measurement.perplexity is not None
    assert first.perplexity is not None
    relative_difference = abs(first.perplexity / measurement.perplexity - 1)
    if relative_difference <= _PERPLEXITY_TOLERANCE:
        return
    raise UserInputError(
        f"{path} and {first_path} contain different perplexities ({measurement.perplexity:.4f} "
        f"and {first.perplexity:.4f}) of one measurement: {measurement.model.position_method}, "
        f"trained at {measurement.model.train_length}, evaluated at {measurement.length}, "
        f"{measurement.window_kind}, {measurement.subset}. Leave one file out."
    )


def _files(paths: Iterable[Path]) -> list[Path]:
    """Return the results files of paths, each once."""
    files: list[Path] = []
    for path in paths:
        results_paths = [path]
        if path.is_dir():
            results_paths = find_results_files(path)
        if not results_paths:
            raise UserInputError(f"{path} contains no results files (*.json). Pass another folder.")
        files += results_paths
    return list(dict.fromkeys(file.resolve() for file in files))
