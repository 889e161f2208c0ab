"""Reading, writing, merging, and finding of results files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import UserInputError
from ..files import atomic_write, json_text, read_json
from .json_types import parse_json
from .provenance import merge_provenance
from .results_file import (
    FILE_CLASSES,
    EvaluationFile,
    ProbeFile,
    ResultsFile,
    TrainingFile,
)
from .series import Series, series_json

#: Results file that a training writes into its save folder.
TRAINING_FILE = "training.json"
#: Configuration that ``compare`` writes into its output folder.
COMPARISON_FILE = "comparison.yaml"
#: File in the same folder that lists the files of the comparison's report.
REPORT_FILES = "report-files.json"

#: Values of the keys ``schema`` and ``version`` of every results file.
SCHEMA = "alibi_fairseq/results"
VERSION = 3
_HEADER = ("schema", "version", "kind")

AnyFile = TypeVar("AnyFile", bound=ResultsFile)


def save_results_file(results: ResultsFile, path: str | os.PathLike) -> None:
    """Write results; the file is complete or absent."""
    content = {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": results.kind,
        "corpus": results.corpus,
        "provenance": results.provenance.model_dump(exclude_unset=True),
        "records": [record.model_dump(exclude_defaults=True) for record in results.records],
    }
    if results.series:
        content["series"] = {key: series_json(series) for key, series in results.series.items()}
    with atomic_write(path) as stream:
        stream.write(json_text(content))


def load_results_file(path: str | os.PathLike) -> ResultsFile:
    """Read a results file of any kind; see :func:`read_json`.

    Raises:
        UserInputError: naming the first key that is wrong, or the file is another JSON file, such
            as the settings of a run.
    """
    content = read_json(path)
    header = content if isinstance(content, dict) else {}
    kind = header.get("kind")
    identity = (header.get("schema"), header.get("version"))
    if identity != (SCHEMA, VERSION) or kind not in FILE_CLASSES:
        raise UserInputError(
            f"{path} is not a results file of version {VERSION}. Pass results files, such as the "
            "results.json of a comparison, or folders that contain no other *.json files."
        )
    fields = {key: value for key, value in content.items() if key not in _HEADER}
    return parse_json(FILE_CLASSES[kind], fields, str(path))


def load_training(folder: Path) -> TrainingFile:
    """Read the record of the training in a save folder.

    Raises:
        UserInputError: as :func:`load_results_file`.
    """
    results = load_results_file(folder / TRAINING_FILE)
    assert isinstance(results, TrainingFile)
    return results


def load_evaluation(path: Path) -> EvaluationFile | ProbeFile:
    """Read a results file that ``alibi-fairseq eval`` wrote.

    Raises:
        UserInputError: as :func:`load_results_file`.
    """
    results = load_results_file(path)
    assert isinstance(results, EvaluationFile | ProbeFile), "eval writes no others"
    return results


def lock_path(path: Path) -> Path:
    """Return the path of the lock that an evaluation holds while it writes a results file."""
    return path.with_name(f".{path.name}.lock")


def read_report_files(folder: Path) -> list[str]:
    """Return the names of the files of a comparison's report; empty if none was written."""
    path = folder / REPORT_FILES
    if not path.is_file():
        return []
    return [Path(name).name for name in read_json(path)]


def find_results_files(folder: Path) -> list[Path]:
    """Return the results files of a folder.

    In the output folder of a comparison, these are ``results.json`` or, with several corpora,
    ``CORPUS-results.json``, as listed in ``report-files.json``. Its other JSON files are settings,
    completion markers, and the results of each run. In any other folder, all JSON files must be
    results files, including those in linked subfolders.
    """
    if (folder / REPORT_FILES).is_file():
        names = read_report_files(folder)
        return sorted(folder / name for name in names if name.endswith("results.json"))
    if (folder / COMPARISON_FILE).is_file():  # copied without that file
        return sorted(folder.glob("*results.json"))
    files = []
    visited = set()
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        real_path = os.path.realpath(parent)
        if real_path in visited:  # a link to a folder above it, or a second link
            subfolders.clear()
            continue
        visited.add(real_path)
        for name in names:
            if name.endswith(".json"):
                files.append(Path(parent, name))
    return sorted(files)


def merge_results_files(files: Sequence[AnyFile]) -> AnyFile:
    """Merge results files of the same kind, corpus, text, and dictionary.

    A record that appears twice is kept once, even if the checkpoint's folder was moved between two
    measurements.

    Raises:
        UserInputError: two records contradict each other.
    """
    first = files[0]
    records: dict[tuple, Any] = {}
    for results in files:
        for record in results.records:
            merged = records.setdefault(record.key, record)
            if record.outcome != merged.outcome:
                raise UserInputError(
                    f"Two results to be merged differ for the same measurement ({record.key}). "
                    "Leave one out."
                )
    return type(first)(
        corpus=first.corpus,
        provenance=merge_provenance([results.provenance for results in files]),
        records=list(records.values()),
        series=merge_series(files),
    )


def merge_series(files: Iterable[ResultsFile]) -> dict[str, Series]:
    """Return the series of the checkpoints of several results files."""
    series: dict[str, Series] = {}
    for results in files:
        series |= results.series
    return series
