"""The one format of every number this project reports (docs/results.md).

A document is a JSON object: what was measured (``cells``), on which text (``corpus``), and with
what (``provenance``). Losses are in bits per token, and their keys say so.
"""

from __future__ import annotations

import math
import os
from typing import Any

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.fields import (
    DOCUMENT,
    HARDWARE,
    LIST,
    OBJECT,
    OPTIONAL,
    PROVENANCE,
    REQUIRED,
    SCALAR,
    TOKENS,
    VERSIONS,
    Check,
)
from alibi_fairseq.results.json_files import json_text, read_json

#: Document that a training writes into its save folder.
TRAINING_FILE = "training.json"

SCHEMA = "alibi_fairseq/results"
VERSION = 1

# The keys that say which measurement a cell is: no two cells of a document agree in all of them.
_RUN = (
    *("model", "position_method", "train_length", "checkpoint", "updates", "seed"),
    *("precision", "model_overrides"),
)
_IDENTITY = {
    "evaluation": (*_RUN, "subset", "length", "stride", "shard"),
    "training": (*_RUN, "subset", "length"),
    "position_loss": (*_RUN, "subset", "length", "stride", "shard", "position_from"),
}
# In a benchmark whatever is not measured describes the case: all text, flags and whole numbers.
_MEASURED = (
    *("tokens_per_second", "step_ms", "peak_memory_mb", "seconds", "round_seconds", "ratio"),
)

# Perplexity is 2^loss_bits; logs round it to two decimals, which near 1 is this many bits.
_PERPLEXITY_TOLERANCE_BITS = 0.01


def cell_identity(kind: str, cell: dict) -> tuple:
    """What distinguishes this cell from the others of its document, as (key, value) pairs."""
    if kind == "benchmark":
        keys = [k for k, v in sorted(cell.items()) if not isinstance(v, float)]
        return tuple((k, cell[k]) for k in keys if k not in _MEASURED and cell[k] is not None)
    return tuple((k, cell[k]) for k in _IDENTITY[kind] if cell.get(k) is not None)


def new_document(kind: str, corpus: str, provenance: dict, cells: list[dict]) -> dict:
    """A valid document of this project's schema.

    Args:
        kind: ``evaluation``, ``training``, ``benchmark`` or ``position_loss``.
        corpus: name of the text measured on, e.g. ``wikitext-103``.
        provenance: as :func:`alibi_fairseq.results.provenance.collect_provenance` gives it.
        cells: the measurements.

    Raises:
        BadInput: naming the key that is wrong.
    """
    document = {
        "schema": SCHEMA,
        "version": VERSION,
        "kind": kind,
        "corpus": corpus,
        "provenance": provenance,
        "cells": cells,
    }
    return validate_document(document)


def validate_document(document: object, source: str = "the results") -> dict:
    """Return the document if it is valid.

    Args:
        source: the file's name, for the error message.

    Raises:
        BadInput: naming ``source``, the first key that is wrong, and what it should be.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        found = document.get("schema") if isinstance(document, dict) else None
        raise BadInput(
            f"{source}: not a results document of this project "
            f"(its schema is {_show(found)}, not {SCHEMA!r})."
        )
    if document.get("version") != VERSION:
        raise BadInput(
            f"{source}: version {_show(document.get('version'))} of the results format, "
            f"but this release reads version {VERSION}; use the release that wrote it."
        )
    _check_keys(document, DOCUMENT, source, "")
    kind = document["kind"]
    if kind not in REQUIRED:
        raise BadInput(
            f"{source}: kind is {_show(kind)}, but must be one of {', '.join(REQUIRED)}."
        )
    _check_provenance(document["provenance"], source, "provenance.")
    seen: dict[tuple, int] = {}
    for index, cell in enumerate(document["cells"]):
        where = f"cells[{index}]"
        _check_cell(kind, cell, source, where)
        first = seen.setdefault(cell_identity(kind, cell), index)
        if first != index:
            raise BadInput(
                f"{source}: {where} measures the same thing as cells[{first}] "
                f"({_describe(kind, cell)}); keep one of them."
            )
    return document


def _check_provenance(provenance: dict, source: str, prefix: str) -> None:
    _check_keys(provenance, PROVENANCE, source, prefix)
    _check_keys(provenance["versions"], VERSIONS, source, f"{prefix}versions.")
    _check_keys(provenance["hardware"], HARDWARE, source, f"{prefix}hardware.")
    if provenance.get("text") is not None:
        _check(OBJECT, provenance["text"], source, f"{prefix}text")
        _check_keys(provenance["text"], TOKENS, source, f"{prefix}text.")
    _check(LIST, provenance.get("parts", []), source, f"{prefix}parts")
    for number, part in enumerate(provenance.get("parts", [])):
        where = f"{prefix}parts[{number}]"
        _check(OBJECT, part, source, where)
        _check_provenance(part, source, f"{where}.")


def _check_cell(kind: str, cell: object, source: str, where: str) -> None:
    if not isinstance(cell, dict):
        raise BadInput(f"{source}: {where} is {_show(cell)}, but must be an object.")
    _check_keys(cell, REQUIRED[kind], source, f"{where}.")
    for key, value in cell.items():
        if key not in REQUIRED[kind]:
            _check(OPTIONAL.get(key, SCALAR), value, source, f"{where}.{key}")
    if "stride" in cell and "length" in cell and cell["stride"] > cell["length"]:
        raise BadInput(
            f"{source}: {where}.stride is {cell['stride']}, but must not be larger than "
            f"the length, {cell['length']}."
        )
    if kind == "position_loss":
        first, last, length = cell["position_from"], cell["position_to"], cell["length"]
        if not first < last <= length:
            raise BadInput(
                f"{source}: {where} holds positions {first} to {last}, "
                f"but must satisfy position_from < position_to <= length ({length})."
            )
    if cell.get("perplexity") is not None and "loss_bits" in cell:
        perplexity, loss = cell["perplexity"], cell["loss_bits"]
        if abs(math.log2(perplexity) - loss) > _PERPLEXITY_TOLERANCE_BITS:
            raise BadInput(
                f"{source}: {where}.perplexity is {perplexity}, but must be "
                f"2^loss_bits = {_power_of_two(loss)}; the loss must be in bits."
            )


def _power_of_two(bits: float) -> str:
    return f"{2.0**bits:.4g}" if bits < 1000 else f"2^{bits:.4g}"


def _check_keys(mapping: dict, checks: dict[str, Check], source: str, prefix: str) -> None:
    for key, check in checks.items():
        if key not in mapping:
            raise BadInput(f"{source}: {prefix}{key} is missing.")
        _check(check, mapping[key], source, f"{prefix}{key}")


def _check(check: Check, value: object, source: str, where: str) -> None:
    wrong = check(value)
    if wrong:
        raise BadInput(f"{source}: {where} is {_show(value)}, but must be {wrong}.")


def _show(value: object) -> str:
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."


def _describe(kind: str, cell: dict) -> str:
    return ", ".join(f"{key} {value}" for key, value in cell_identity(kind, cell))


def save_document(document: dict, path: str | os.PathLike) -> None:
    """Validate, then write as indented JSON, lists of numbers on one line; the file is whole or not there at all."""
    validate_document(document, str(path))
    with atomic_write(path) as stream:
        stream.write(json_text(document))


def load_document(path: str | os.PathLike) -> dict:
    """Read and validate one document.

    Raises:
        BadInput: the file cannot be read, is not JSON, holds NaN, or breaks the schema.
    """
    return validate_document(read_json(path), str(path))


def merge_documents(documents: list[dict]) -> dict:
    """One document with the cells of several of the same kind, corpus, text and dictionary.

    A cell that appears twice with the same values is kept once. In the merged provenance the
    seconds are summed, the date is the latest, the commands stand one per line, and what
    differs between the parts is null; ``parts`` keeps each part's own provenance.

    Raises:
        BadInput: the documents do not belong together, or two cells contradict each other.
    """
    if not documents:
        raise BadInput("There are no results documents to merge.")
    first = documents[0]
    kind = first["kind"]
    cells: dict[tuple, dict] = {}
    for document in documents:
        for key in ("kind", "corpus"):
            _must_agree(key, first[key], document[key])
        for key in ("data_sha256", "dictionary_sha256"):
            _must_agree(key, first["provenance"][key], document["provenance"][key])
        for cell in document["cells"]:
            kept = cells.setdefault(cell_identity(kind, cell), cell)
            if kept != cell:
                raise BadInput(
                    f"Two results to be merged differ for the same cell "
                    f"({_describe(kind, cell)}); leave one of them out."
                )
    provenance = _merge_provenance([document["provenance"] for document in documents])
    return new_document(kind, first["corpus"], provenance, list(cells.values()))


def _must_agree(key: str, one: object, other: object) -> None:
    if one != other:
        raise BadInput(f"Results with different {key} cannot be merged ({one} and {other}).")


def _merge_provenance(parts: list[dict]) -> dict:
    parts = [piece for part in parts for piece in part.get("parts", [part])]
    if len(parts) == 1:
        return parts[0]
    merged = _common(parts)
    merged["command"] = "\n".join(dict.fromkeys(part["command"] for part in parts))
    merged["date"] = max(part["date"] for part in parts)
    merged["seconds"] = sum(part["seconds"] for part in parts)
    merged["parts"] = parts
    return merged


def _common(parts: list[dict]) -> dict:
    """The values all parts share, null where they differ, nested objects key by key."""
    common: dict = {}
    for key, value in parts[0].items():
        values: list[Any] = [part.get(key) for part in parts]
        if all(isinstance(v, dict) for v in values):
            common[key] = _common(values)
        else:
            common[key] = value if all(v == value for v in values) else None
    return common
