"""Results files: records of one kind, the text, and their provenance (docs/results.md)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from .json_types import NonEmptyStr, StrictObject
from .provenance import Hardware as Hardware
from .provenance import Provenance as Provenance
from .record import Benchmark, Measurement, ProbeMeasurement, Validation
from .series import Series, read_series


def _read_series(content: object) -> Series:
    """Return the series that JSON describes, which strict validation would reject."""
    return content if isinstance(content, Series) else read_series(content, "series")


StoredSeries = Annotated[Series, BeforeValidator(_read_series)]


class ResultsFile(StrictObject):
    """Content of a results file.

    Attributes:
        kind: kind of its records.
        corpus: name of the text.
        series: how the models were trained, by the hash of the checkpoint; of a ``training``, whose
            checkpoints change, by ``training``.
    """

    kind: ClassVar[str]

    corpus: NonEmptyStr
    provenance: Provenance
    records: list[Any]
    series: dict[str, StoredSeries] = {}


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

    @property
    def own_series(self) -> Series | None:
        """How the model was trained; None in a file of an earlier release."""
        return self.series.get(self.kind)


class BenchmarkFile(ResultsFile):
    """Results of benchmarks."""

    kind = "benchmark"
    records: list[Benchmark]


FILE_CLASSES: dict[str, type[ResultsFile]] = {
    file_class.kind: file_class
    for file_class in (EvaluationFile, ProbeFile, TrainingFile, BenchmarkFile)
}
