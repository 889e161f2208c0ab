"""Results files: records of one kind, the text, and their provenance (docs/results.md)."""

from __future__ import annotations

from typing import Any, ClassVar

from .json_types import (
    Date,
    JsonObject,
    NonEmptyStr,
    NonNegativeInt,
    NotNegative,
    Positive,
    PositiveCount,
    Sha256,
    StrictObject,
)
from .record import Benchmark, Measurement, ProbeMeasurement, Validation


class Hardware(JsonObject):
    """Machine of a measurement. Null means unknown, or no GPU."""

    cpu: NonEmptyStr | None
    cores: PositiveCount | None
    memory_gb: Positive | None
    gpu: NonEmptyStr | None
    cpu_family: str | None = None
    cpu_model: str | None = None


class Provenance(JsonObject):
    """Origin of the results, and of each part if results files were merged."""

    command: NonEmptyStr
    git_commit: NonEmptyStr | None
    git_clean: bool | None
    data_sha256: Sha256 | None
    dictionary_sha256: Sha256 | None
    versions: dict[str, NonEmptyStr | None]
    hardware: Hardware
    threads: PositiveCount | None
    precision: NonEmptyStr | None
    seed: NonNegativeInt | None
    date: Date
    seconds: NotNegative
    parts: list[Provenance] = []


class ResultsFile(StrictObject):
    """Content of a results file.

    Attributes:
        kind: kind of its records.
        corpus: name of the text.
    """

    kind: ClassVar[str]

    corpus: NonEmptyStr
    provenance: Provenance
    records: list[Any]


class EvaluationFile(ResultsFile):
    """Results of ``alibi-fairseq eval`` on a text."""

    kind = "evaluation"
    records: list[Measurement]


class ProbeFile(ResultsFile):
    """Results of ``alibi-fairseq eval`` on a probe."""

    kind = "probe"
    records: list[ProbeMeasurement]


class TrainingFile(ResultsFile):
    """Record of a training, in its save folder."""

    kind = "training"
    records: list[Validation]


class BenchmarkFile(ResultsFile):
    """Results of benchmarks."""

    kind = "benchmark"
    records: list[Benchmark]


FILE_CLASSES: dict[str, type[ResultsFile]] = {
    file_class.kind: file_class
    for file_class in (EvaluationFile, ProbeFile, TrainingFile, BenchmarkFile)
}
