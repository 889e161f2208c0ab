"""Merging of results files."""

from __future__ import annotations

from typing import Any

from ..errors import UserInputError
from .identity import is_copy, record_identity
from .results_file import new_results_file


def merge_results_files(files: list[dict]) -> dict:
    """Merge the contents of results files of the same kind, corpus, text, and dictionary.

    A record that appears twice with the same values is kept once, even if the checkpoint's folder
    was moved between two measurements. In the merged provenance, ``seconds`` is the sum, ``date``
    the latest date, and ``command`` has a command per line. Other values that differ between the
    files are null. ``parts`` has the provenance of each file. Equal ones count once, because
    several files can contain the same measurements.

    Seeds and precisions that differ are copied into the records, except for benchmarks.

    Raises:
        UserInputError: the files do not belong together, or two records contradict each other.
    """
    first = files[0]
    for results in files[1:]:
        _check_same_text(first, results)
    records = _merge_records(first["kind"], files)
    provenance = merge_provenance([results["provenance"] for results in files])
    return new_results_file(first["kind"], first["corpus"], provenance, records)


def _merge_records(kind: str, files: list[dict]) -> list[dict]:
    """Merge the records of results files of one kind, and keep one of equal records.

    Raises:
        UserInputError: two records of the same measurement differ.
    """
    copied_keys: list[str] = []
    if kind != "benchmark":
        copied_keys = [key for key in ("seed", "precision") if _differs(key, files)]
    merged: dict[tuple, dict] = {}
    for results in files:
        copied = {key: results["provenance"][key] for key in copied_keys}
        for original in results["cells"]:
            record = {**copied, **original}
            identity = record_identity(kind, record)
            if identity not in merged:
                merged[identity] = record
            elif merged[identity] != record and not is_copy(record, merged[identity]):
                measurement = ", ".join(f"{key} {value}" for key, value in identity)
                raise UserInputError(
                    "Two results to be merged differ for the same measurement "
                    f"({measurement}). Leave one out."
                )
    return list(merged.values())


def _check_same_text(first: dict, other: dict) -> None:
    """Check that two results files belong together.

    Raises:
        UserInputError: they have different kinds, corpora, texts, or dictionaries.
    """
    for key in ("kind", "corpus"):
        _check_equal(key, first[key], other[key])
    for key in ("data_sha256", "dictionary_sha256"):
        _check_equal(key, first["provenance"][key], other["provenance"][key])


def _check_equal(key: str, first: Any, other: Any) -> None:
    if first != other:
        raise UserInputError(
            f"Results with different {key} cannot be merged ({first} and {other})."
        )


def _differs(key: str, files: list[dict]) -> bool:
    """Return True if a value of the provenance is known in all files and differs."""
    values = {results["provenance"][key] for results in files}
    return None not in values and len(values) > 1


def merge_provenance(origins: list[dict]) -> dict:
    """Merge the provenance of several results files, some of which may be merged already.

    :func:`merge_results_files` describes the result.
    """
    parts: list[dict] = []
    for origin in origins:
        for part in origin.get("parts", [origin]):
            if part not in parts:
                parts.append(part)
    if len(parts) == 1:
        return parts[0]
    commands = dict.fromkeys(part["command"] for part in parts)
    merged = _common(parts)
    merged["command"] = "\n".join(commands)
    merged["date"] = max(part["date"] for part in parts)
    merged["seconds"] = sum(part["seconds"] for part in parts)
    merged["parts"] = parts
    return merged


def _common(parts: list[dict]) -> dict:
    """Return the values that all parts share, and None for values that differ.

    Nested objects are compared key by key.
    """
    common: dict = {}
    for key in parts[0]:
        values: list[Any] = [part.get(key) for part in parts]
        if all(isinstance(value, dict) for value in values):
            common[key] = _common(values)
        elif values.count(values[0]) == len(values):
            common[key] = values[0]
        else:
            common[key] = None
    return common
