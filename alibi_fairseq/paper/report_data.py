"""Results files loaded for a report, with the measurements that are comparable with the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import UserInputError
from ..results.files import find_results_files, load_results_file
from ..results.names import names_across_splits
from ..results.record import Measurement
from ..results.results_file import EvaluationFile, ResultsFile
from . import comparability, published

# Largest relative difference between two perplexities of one measurement in two files.
_PERPLEXITY_TOLERANCE = 1e-3


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

        The name distinguishes the texts. It is empty if there is only one.
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
            yield name, replace(self, measurements=measurements)


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
        f"and {first.perplexity:.4f}) of one measurement: {measurement.model.method_name}, "
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
