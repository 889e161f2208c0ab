"""Results files of version 3, which are only read."""

from __future__ import annotations

import os

from alibi_fairseq.files import atomic_write, json_text
from alibi_fairseq.results.benchmark import SCHEMA, VERSION, BenchmarkFile
from alibi_fairseq.results.version_3 import ResultsFile


def save_version_3(results: ResultsFile | BenchmarkFile, path: str | os.PathLike) -> None:
    """Write a results file of version 3."""
    content = {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": results.kind,
        "corpus": results.corpus,
        "provenance": results.provenance.model_dump(exclude_unset=True),
        "records": [record.model_dump(exclude_defaults=True) for record in results.records],
    }
    with atomic_write(path) as stream:
        stream.write(json_text(content))
