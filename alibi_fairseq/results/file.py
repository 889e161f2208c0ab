"""Results files: series once per file, and results that refer to them.

Keys of series (``s1``, ``s2``, …) hold within one file; files are merged by what the series are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..errors import UserInputError, describe_invalid
from ..files import atomic_write, json_text, read_json
from .benchmark import BENCHMARK_SCHEMA, BENCHMARK_VERSION, Benchmark, parse_benchmarks
from .file_names import TRAINING_FILE
from .json_types import STORED
from .provenance import Provenance, merge_provenance
from .result import Result, distinct
from .series import Series, series_json

#: Values of the keys ``schema`` and ``version`` of a results file.
SCHEMA = "alibi_fairseq/results"
VERSION = 4


@dataclass(frozen=True)
class Results:
    """Results of any models, and where they come from.

    Attributes:
        provenance: of all of them; None if nothing is known.
        benchmarks: measurements of speed and memory, which have no model.
    """

    results: Sequence[Result]
    provenance: Provenance | None = None
    benchmarks: Sequence[Benchmark] = ()


@dataclass(frozen=True)
class _StoredResult(Result):
    """Result in a file, with the key of its series."""

    series: str  # type: ignore[assignment]


@dataclass(frozen=True)
class _StoredFile:
    """Content of a results file, without its header and provenance."""

    __pydantic_config__ = STORED

    series: dict[str, Series]
    results: list[_StoredResult]


_FILE_TYPE = TypeAdapter(_StoredFile)
_RESULT_TYPE = TypeAdapter(Result)


def load(path: str | os.PathLike) -> Results:
    """Read a results file of models or of benchmarks.

    Raises:
        UserInputError: naming the first key that is wrong, or the file is another JSON file.
    """
    content = read_json(path)
    header = content if isinstance(content, dict) else {}
    identity = (header.get("schema"), header.get("version"))
    if identity == (BENCHMARK_SCHEMA, BENCHMARK_VERSION):
        file = parse_benchmarks(content, str(path))
        return Results([], file.provenance, file.records)
    if identity != (SCHEMA, VERSION):
        raise UserInputError(
            f"{path} is not a results file of version {VERSION}. Pass results files, such as the "
            "results.json of a comparison, or folders that contain no other *.json files."
        )
    stored = {key: content[key] for key in content if key not in ("schema", "version")}
    origin = stored.pop("provenance", None)
    try:
        provenance = None if origin is None else Provenance.model_validate(origin)
    except ValidationError as error:
        raise UserInputError(f"{path}: {describe_invalid(error)}") from error
    return Results(read_results(stored, str(path)), provenance)


def load_training(folder: Path) -> Results:
    """Read the record of the training in a save folder: its validations, in order.

    Raises:
        UserInputError: as :func:`load`.
    """
    return load(folder / TRAINING_FILE)


def read_results(content: object, source: str) -> list[Result]:
    """Return the results that JSON values describe (:func:`results_json`).

    Args:
        source: file with the values, for messages.

    Raises:
        UserInputError: naming ``source`` and the first value that is wrong.
    """
    try:
        stored = _FILE_TYPE.validate_json(json.dumps(content))
    except ValidationError as error:
        raise UserInputError(f"{source}: {describe_invalid(error)}") from error
    results = []
    for result in stored.results:
        if result.series not in stored.series:
            raise UserInputError(f"{source}: there is no series {result.series!r}.")
        values = {field.name: getattr(result, field.name) for field in fields(Result)}
        values["series"] = stored.series[result.series]
        results.append(Result(**values))
    return results


def results_json(results: Iterable[Result]) -> dict[str, Any]:
    """Return results as JSON values, with each series once."""
    keys: dict[str, str] = {}
    stored_series: dict[str, Any] = {}
    stored_results = []
    for result in results:
        series = series_json(result.series)
        text = json.dumps(series, sort_keys=True)
        if text not in keys:
            keys[text] = f"s{len(keys) + 1}"
            stored_series[keys[text]] = series
        fields_of_result = _RESULT_TYPE.dump_python(
            result, mode="json", exclude_defaults=True, exclude={"series"}
        )
        stored_results.append({"series": keys[text], **fields_of_result})
    return {"series": stored_series, "results": stored_results}


def save(results: Results, path: str | os.PathLike) -> None:
    """Write a results file; the file is complete or absent."""
    content: dict[str, Any] = {"schema": SCHEMA, "version": VERSION}
    if results.provenance is not None:
        content["provenance"] = results.provenance.model_dump(exclude_unset=True)
    content |= results_json(results.results)
    with atomic_write(path) as stream:
        stream.write(json_text(content))


def merge(files: Iterable[Results]) -> Results:
    """Merge results. Of one checkpoint and case, that with most details is kept.

    Raises:
        UserInputError: two results contradict each other.
    """
    results: list[Result] = []
    origins = []
    for file in files:
        results += file.results
        if file.provenance is not None:
            origins.append(file.provenance)
    provenance = merge_provenance(origins) if origins else None
    return Results(distinct(results), provenance)
