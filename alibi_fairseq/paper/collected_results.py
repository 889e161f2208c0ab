"""Results files loaded for a report, with the results that are comparable with the paper's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserInputError
from ..positions.spec import distinct_labels
from ..reporting.row import model_label
from ..reporting.texts import Text, identify_text, text_names
from ..reporting.training_costs import processor_name
from ..results.file import Results, load
from ..results.file_names import find_results_files
from ..results.provenance import Hardware
from ..results.result import Result, agree, identify_checkpoint
from ..results.series import Series
from ..results.values import TextValues
from . import comparability, published

_UNKNOWN_MACHINE = "an unknown machine"


@dataclass
class CollectedResults:
    """Contents of a report.

    Attributes:
        files: path and content of each results file.
        results: every perplexity once, with most details.
    """

    files: list[tuple[Path, Results]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def select_validations(self, series: Series) -> list[Result]:
        """Return the validations of the trainings of a series on ``valid``, by updates."""
        of_series = []
        for _, file in self.files:
            for result in file.results:
                is_validation = result.case.kind == "validation" and result.case.split == "valid"
                if is_validation and result.series == series:
                    of_series.append(result)
        return sorted(of_series, key=lambda validation: validation.updates or 0)

    def by_machine(self) -> dict[str, CollectedResults]:
        """Return the contents with the files of each machine only (:func:`describe_machine`).

        The perplexities are those of all machines, because they depend on none.
        """
        files: dict[str, list[tuple[Path, Results]]] = defaultdict(list)
        for path, file in self.files:
            files[describe_machine(file)].append((path, file))
        return {machine: replace(self, files=known) for machine, known in files.items()}

    @property
    def has_benchmarks(self) -> bool:
        """True if a file has measurements of speed and memory."""
        return any(file.benchmarks for _, file in self.files)

    def comparable(self, corpus: str) -> list[Result]:
        """Return the results on a corpus in the paper's setting."""
        comparable = []
        for result in self.results:
            if result.case.corpus != corpus:
                continue
            if comparability.incomparability_reason(result) is None:
                comparable.append(result)
        return comparable

    def by_text(self, corpus: str) -> Iterator[tuple[str, CollectedResults]]:
        """Yield the name of each text of a corpus and the results on it.

        The name distinguishes the texts. It is empty if there is only one.
        """
        setting = published.paper_setting(corpus)
        assert setting is not None, "a corpus of the paper"
        texts: list[Text] = []
        for result in self.results:
            is_paper_model = result.series.facts.architecture == setting["model"]
            if is_paper_model and result.case.corpus == corpus:
                texts.append(identify_text(result))
        name_by_text = text_names(texts)
        names = sorted(set(name_by_text.values()) - {""})
        for name in names or [""]:
            results = []
            for result in self.results:
                # A text without a name, such as the only one of a split, is part of all results.
                if name_by_text.get(identify_text(result), "") in ("", name):
                    results.append(result)
            yield name, replace(self, results=results)


def collect(paths: Iterable[Path], labels: Mapping[Path, str] | None = None) -> CollectedResults:
    """Load results files and folders of them (:func:`.find_results_files`).

    Args:
        paths: the files and folders.
        labels: names of the models of a results file, by its resolved path. Where models of one
            label differ in position method or training length, their names state it.

    Raises:
        UserInputError: A path does not exist, a file violates the schema, or two files contradict
            each other.
    """
    labels = labels or {}
    files = _files(paths)
    for path in labels:
        if path not in files:
            raise UserInputError(f"--label {path} is not among the results. Pass it as well.")
    loaded = []
    for path in files:
        file = load(path)
        if path in labels:
            file = _labeled(file, labels[path])
        loaded.append((path, file))
    collected = CollectedResults(_tell_labels_apart(loaded))
    by_key: dict[tuple, tuple[Path, Result]] = {}
    for path, file in collected.files:
        for result in file.results:
            if result.case.kind != "text" or not isinstance(result.values, TextValues):
                continue
            key = measurement_key(result)
            first_path, first = by_key.setdefault(key, (path, result))
            _check_agreement(path, result, first_path, first)
            assert isinstance(first.values, TextValues)
            # As :func:`.results.result.distinct` does
            if first.values.details < result.values.details:
                by_key[key] = (path, result)
    collected.results += [result for _, result in by_key.values()]
    return collected


def measurement_key(result: Result) -> tuple:
    """Return what identifies an evaluation, whatever file has it."""
    return (result.identity, identify_checkpoint(result), identify_text(result))


def _labeled(file: Results, label: str) -> Results:
    """Return a results file whose models have a name."""
    results = []
    for result in file.results:
        results.append(replace(result, series=replace(result.series, label=label)))
    return replace(file, results=results)


def _tell_labels_apart(files: Sequence[tuple[Path, Results]]) -> list[tuple[Path, Results]]:
    """Add method or training length to a label whose models differ in it, in any table."""
    series_by_label: dict[str, list[Series]] = defaultdict(list)
    for _, file in files:
        for result in file.results:
            if result.series.label:
                series_by_label[result.series.label].append(result.series)
    names: dict[tuple[str, Series], str] = {}
    for label, of_label in series_by_label.items():
        methods = distinct_labels(series.method for series in of_label)
        has_several_methods = len(set(methods.values())) > 1
        has_several_lengths = len({series.train_length for series in of_label}) > 1
        for series in of_label:
            name = f"{label}, {methods[series.method]}" if has_several_methods else label
            length = series.train_length if has_several_lengths else None
            names[label, series] = model_label(name, length)
    return [(path, _renamed(file, names)) for path, file in files]


def _renamed(file: Results, names: Mapping[tuple[str, Series], str]) -> Results:
    """Return a results file whose models with a label have the names of label and series."""
    results = []
    for result in file.results:
        if result.series.label:
            name = names[result.series.label, result.series]
            result = replace(result, series=replace(result.series, label=name))
        results.append(result)
    return replace(file, results=results)


def _check_agreement(path: Path, result: Result, first_path: Path, first: Result) -> None:
    """Raise UserInputError if two files have different perplexities of one measurement."""
    assert isinstance(result.values, TextValues)
    assert isinstance(first.values, TextValues)
    if agree(first.values, result.values):
        return
    windows = "non-overlapping" if result.case.nonoverlapping else f"S={result.case.stride}"
    raise UserInputError(
        f"{path} and {first_path} contain different perplexities ({result.values.perplexity:.4f} "
        f"and {first.values.perplexity:.4f}) of one measurement: {result.series.method.label}, "
        f"trained at {result.series.train_length}, evaluated at {result.case.length}, "
        f"{windows}, {result.case.split}. Leave one file out."
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


def describe_machine(file: Results) -> str:
    """Describe the machine of a results file: GPU, or processor and threads, and precision.

    If all results were computed on the CPU, the machine's GPU is left out. Parts of a merged file
    may have different machines.
    """
    if file.provenance is None:
        return _UNKNOWN_MACHINE
    machines = []
    for part in file.provenance.parts or [file.provenance]:
        hardware = _used_hardware(file, part.hardware)
        words = [processor_name(hardware)]
        if hardware.gpu is None and part.threads:
            unit = "thread" if part.threads == 1 else "threads"
            words.append(f"{part.threads} {unit}")
        if part.precision:
            words.append(part.precision)
        machines.append(", ".join(words))
    return _the_only(machines)


def device_name(file: Results) -> str:
    """Return the name of a GPU of a results file, whatever their number, or of the processor."""
    if file.provenance is None:
        return _UNKNOWN_MACHINE
    devices = []
    for part in file.provenance.parts or [file.provenance]:
        hardware = _used_hardware(file, part.hardware)
        devices.append(re.sub(r"^\d+ x ", "", processor_name(hardware)))
    return _the_only(devices)


def _used_hardware(file: Results, hardware: Hardware) -> Hardware:
    """Return the hardware of a results file, without the GPU if everything ran on the CPU."""
    devices = {result.cost.device for result in file.results}
    return hardware.model_copy(update={"gpu": None}) if devices == {"cpu"} else hardware


def _the_only(names: Sequence[str]) -> str:
    """Return the name that all parts of a merged file share."""
    return names[0] if len(set(names)) == 1 else "several machines"
