"""Results files for the tests, and readers of Markdown tables and figures."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from alibi_fairseq.paper.published import PrintedMeasurement
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.results.benchmark import BenchmarkFile, save_benchmarks
from alibi_fairseq.results.file import Results, save
from alibi_fairseq.results.json_types import StrictObject
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.upgrade import upgraded
from alibi_fairseq.results.version_3 import (
    FILE_CLASSES,
    Measurement,
    Model,
    ModelRecord,
    ProbeMeasurement,
    ResultsFile,
    Validation,
)

PROVENANCE = {
    "command": "alibi-fairseq eval data --path checkpoint.pt",
    "git_commit": "0" * 40,
    "git_clean": True,
    "data_sha256": "a" * 64,
    "dictionary_sha256": "b" * 64,
    "versions": {
        "python": "3.11.7",
        "torch": "2.13.0",
        "fairseq": "fairseq-fixed 0.12.3.1",
        "numpy": "2.4.6",
        "alibi_fairseq": "1.0",
    },
    "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "gpu": None},
    "threads": 2,
    "precision": "fp32",
    "seed": 1,
    "date": "2026-01-31T12:00:00Z",
    "seconds": 12.5,
}


def evaluation_record(perplexity: float = 16.0, **changes) -> Measurement:
    """Return a measurement; fields of the model are given like the others."""
    values = {
        "method": "alibi",
        "train_length": 64,
        "length": 128,
        "stride": changes.get("length", 128),
        "subset": "valid",
        "tokens": 1000,
        "loss_bits": math.log2(perplexity),
        "options": {},
    }
    return make_record(Measurement, **values | changes)


def validation_record(perplexity: float = 16.0, **changes) -> Validation:
    """Return a validation; fields of the model are given like the others."""
    values = {
        "method": "alibi",
        "train_length": 64,
        "updates": 100,
        "subset": "valid",
        "loss_bits": math.log2(perplexity),
    }
    return make_record(Validation, **values | changes)


def make_record(record_class: type[ModelRecord], **values) -> ModelRecord:
    """Return a record; fields of the model are given like the others, the method by its name."""
    model = _fields_of_model(values)
    return record_class(model=Model(**model), **values)


def _fields_of_model(values: dict) -> dict:
    """Remove the fields of the model from those of a record, and return them."""
    model = {key: values.pop(key) for key in Model.model_fields if key in values}
    if isinstance(model.get("method"), str):
        model["method"] = MethodSpec.plain(model["method"])
    return model


def with_model(record: ModelRecord, **changes) -> ModelRecord:
    """Return a record whose model has other values."""
    return record.model_copy(update={"model": record.model.model_copy(update=changes)})


def changed(record: Measurement, **changes) -> Measurement:
    """Return a measurement with other fields; fields of the model are given like the others."""
    if "perplexity" in changes:
        changes["loss_bits"] = math.log2(changes.pop("perplexity"))
    model = _fields_of_model(changes)
    return with_model(record, **model).model_copy(update=changes)


def as_ours(printed: PrintedMeasurement, **changes) -> Measurement:
    """Return a measurement of the paper as one of ours, with other fields."""
    values = {
        "method": printed.method,
        "train_length": printed.train_length,
        "length": printed.case.length,
        "stride": printed.case.stride,
        "subset": printed.case.split,
        "perplexity": printed.perplexity,
        "updates": printed.updates,
        "tokens": None,
        "options": None,
    }
    return evaluation_record(**values | changes)


def parse_flags(flags: str) -> dict[str, str]:
    """Return the options of a training as a model records them."""
    options: dict[str, str] = {}
    for word in flags.replace("=", " ").split():
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            options[name] = ""
        else:
            options[name] = word
    return options


def document(
    *records: StrictObject, kind: str = "evaluation", corpus: str = "demo", **provenance
) -> ResultsFile:
    """Return a results file. Records get the seed, precision, and text that they lack."""
    origin = Provenance(**PROVENANCE | provenance)
    complete = []
    for record in records:
        if isinstance(record, ModelRecord):
            record = with_model(
                record,
                seed=origin.seed if record.model.seed is None else record.model.seed,
                precision=record.model.precision or origin.precision,
            )
        if isinstance(record, (Measurement, ProbeMeasurement)):
            text = {
                "corpus": record.corpus or corpus,
                "data_sha256": record.data_sha256 or origin.data_sha256,
            }
            record = record.model_copy(update=text)
        complete.append(record)
    return FILE_CLASSES[kind](corpus=corpus, provenance=origin, records=complete)


def save_results_file(results: ResultsFile | BenchmarkFile, path: str | os.PathLike) -> None:
    """Write a results file as a release writes it."""
    if isinstance(results, BenchmarkFile):
        save_benchmarks(results, path)
    else:
        save(Results(results_in(results), results.provenance), path)


def results_of(*records: StrictObject, **values) -> list[Result]:
    """Return the results of a results file; see :func:`document`."""
    return results_in(document(*records, **values))


def results_in(results: ResultsFile) -> list[Result]:
    """Return the results of a document."""
    return upgraded(results, Path("folder without other files"))


def cells_of(text: str) -> list[list[str]]:
    """Return the rows of the Markdown tables in a text, without the rules below the headers."""
    rows = [line.strip()[1:-1].split("|") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    return [row for row in rows if not is_rule(row)]


def is_rule(row: list[str]) -> bool:
    """Return True if a row is the rule below the header of a table."""
    return all(cell and set(cell) <= set("-:") for cell in row)


@contextmanager
def figures_as_svg():
    """Draw figures in SVG only. Files of other formats are created, but empty."""
    savefig = Figure.savefig

    def only_svg(figure, stream, format, **options):
        if format == "svg":
            savefig(figure, stream, format=format, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", only_svg)
        yield
