"""Writing and reading of results files."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UserInputError
from ..files import atomic_write, json_text, read_json
from .schema import validate_results

#: Configuration that ``compare`` writes into its output folder.
COMPARISON_FILE = "comparison.yaml"
#: File in the same folder that lists the files of the comparison's report.
REPORT_FILES = "report-files.json"


def new_results_file(kind: str, corpus: str, provenance: dict, records: list[dict]) -> dict:
    """Create and validate the content of a results file; ``corpus`` names the evaluated text."""
    results = {
        "schema": "alibi_fairseq/results",
        "version": 1,
        "kind": kind,
        "corpus": corpus,
        "provenance": provenance,
        "cells": records,
    }
    return validate_results(results)


def save_results_file(results: dict, path: str | os.PathLike) -> None:
    """Validate and write results; the file is complete or absent."""
    validate_results(results, str(path))
    with atomic_write(path) as stream:
        stream.write(json_text(results))


def load_results_file(path: str | os.PathLike) -> dict:
    """Read and validate a results file; see :func:`read_json` and :func:`validate_results`.

    Raises:
        UserInputError: the file is another JSON file, such as the settings of a run.
    """
    content = read_json(path)
    if not isinstance(content, dict) or "schema" not in content:
        raise UserInputError(
            f"{path} is not a results file. Pass results files, such as the results.json of a "
            "comparison, or folders that contain no other *.json files."
        )
    return validate_results(content, str(path))


def lock_path(path: Path) -> Path:
    """Return the path of the lock that an evaluation holds while it writes a results file."""
    return path.with_name(f".{path.name}.lock")


def read_report_files(folder: Path) -> list[str]:
    """Return the names of the files of a comparison's report; empty if none was written.

    Raises:
        UserInputError: ``report-files.json`` has other contents.
    """
    path = folder / REPORT_FILES
    if not path.is_file():
        return []
    names = read_json(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserInputError(f"{path} is not a list of file names. Remove it.")
    return [Path(name).name for name in names]


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
