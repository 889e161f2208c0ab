"""Benchmarks and their results files, which have no model."""

from __future__ import annotations

import os
from typing import Any

from ..files import atomic_write, json_text
from .json_types import NonEmptyStr, Positive, Scalar, StrictObject, parse_json
from .provenance import Provenance

#: Values of the keys ``schema`` and ``version`` of a file of benchmarks.
BENCHMARK_SCHEMA = "alibi_fairseq/benchmarks"
BENCHMARK_VERSION = 1


class Benchmark(StrictObject):
    """Measurement of speed or memory.

    Attributes:
        name: what was measured.
        case: values that identify the measurement, together with the name.
        measured: measured values.
        baseline: variant that ``ratio`` refers to. Null if nothing is compared.
        ratio: speed relative to the baseline in the same run.
    """

    name: NonEmptyStr
    case: dict[str, Scalar]
    measured: dict[str, Scalar | list[float]]
    baseline: NonEmptyStr | None = None
    ratio: Positive | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All values by name."""
        return {"name": self.name, **self.case, **self.measured, "ratio": self.ratio}


class BenchmarkFile(StrictObject):
    """Content of a results file of benchmarks."""

    corpus: NonEmptyStr
    provenance: Provenance
    records: list[Benchmark]


def parse_benchmarks(content: dict[str, Any], source: str) -> BenchmarkFile:
    """Return the benchmarks that the JSON of a file describes.

    Args:
        source: the file, for messages.

    Raises:
        UserInputError: naming ``source`` and the first key that is wrong.
    """
    fields = {key: content[key] for key in content if key not in ("schema", "version")}
    return parse_json(BenchmarkFile, fields, source)


def save_benchmarks(results: BenchmarkFile, path: str | os.PathLike) -> None:
    """Write benchmarks; the file is complete or absent."""
    content = {
        "schema": BENCHMARK_SCHEMA,
        "version": BENCHMARK_VERSION,
        "corpus": results.corpus,
        "provenance": results.provenance.model_dump(exclude_unset=True),
        "records": [record.model_dump(exclude_defaults=True) for record in results.records],
    }
    with atomic_write(path) as stream:
        stream.write(json_text(content))
