"""The one format of every number this project reports (docs/results.md).

A document is a JSON object: what was measured (``cells``), on which text (``corpus``), and with
what (``provenance``). Losses are in bits per token, and their keys say so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    ValidationError,
    model_validator,
)

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.json_files import json_text, read_json

#: Document that a training writes into its save folder.
TRAINING_FILE = "training.json"

SCHEMA = "alibi_fairseq/results"
VERSION = 1

# Perplexity is 2^loss_bits; logs round it to two decimals, which near 1 is this many bits.
_PERPLEXITY_TOLERANCE_BITS = 0.01

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, lt=2**63)]  # what any reader of JSON can hold
PositiveCount = Annotated[int, Field(ge=1, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Bits = Annotated[float, Field(ge=0, lt=1024)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Date = Annotated[str, AfterValidator(lambda date: _utc_date(date))]
Scalar = bool | Annotated[int, Field(gt=-(2**63), lt=2**63)] | float | str | None
_ABSENT: Any = None  # the key may be left out, but not be null


def _utc_date(date: str) -> str:
    datetime.strptime(date, "%Y-%m-%dT%H:%M:%SZ")
    return date


class JsonObject(BaseModel):
    """An object of exactly the stated types, finite numbers, and any further keys."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Hardware(JsonObject):
    cpu: Text | None
    cores: PositiveCount | None
    memory_gb: Positive | None
    gpu: Text | None


class Tokens(JsonObject):
    """The text's tokens, where the data have a manifest."""

    tokenizer: Text | None
    vocabulary: Count | None
    train_tokens: Count | None


class Provenance(JsonObject):
    command: Text
    git_commit: Text | None
    git_clean: bool | None
    data_sha256: Sha256 | None
    dictionary_sha256: Sha256 | None
    versions: dict[str, Text | None]
    hardware: Hardware
    threads: PositiveCount | None
    precision: Text | None
    seed: Count | None
    date: Date
    seconds: NotNegative
    text: Tokens | None = None
    parts: list[Provenance] = []


class Cell(JsonObject):
    """A cell of any kind: keys that it may have, beside any number, text, flag or numbers."""

    __pydantic_extra__: dict[str, Scalar | list[float]]

    position_method: Text = _ABSENT
    train_length: PositiveCount = _ABSENT
    length: PositiveCount = _ABSENT
    stride: PositiveCount = _ABSENT
    model: Text = _ABSENT
    checkpoint: Text = _ABSENT
    updates: Count = _ABSENT
    seed: Count | None = None
    precision: Text = _ABSENT
    model_overrides: Json[dict] = _ABSENT
    shard: Text = _ABSENT
    tokens: PositiveCount = _ABSENT
    loss_bits: Bits = _ABSENT
    perplexity: Positive = _ABSENT
    word_perplexity: Positive | None = None
    bits_per_byte: NotNegative | None = None
    hours: NotNegative = _ABSENT
    processes: PositiveCount = _ABSENT
    parameters: PositiveCount = _ABSENT
    layers: PositiveCount = _ABSENT
    width: PositiveCount = _ABSENT
    vocabulary: PositiveCount = _ABSENT
    tokens_per_second: Positive = _ABSENT
    tokens_per_second_batch_1: Positive = _ABSENT
    seconds: NotNegative = _ABSENT
    gpu_hours: NotNegative = _ABSENT
    peak_memory_mb: Positive | None = None
    phase: Literal["train", "evaluate"] = _ABSENT

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Cell:
        if self.stride is not None and self.length is not None and self.stride > self.length:
            raise ValueError("stride must not be larger than length")
        if self.perplexity is None or self.loss_bits is None:
            return self
        if abs(math.log2(self.perplexity) - self.loss_bits) > _PERPLEXITY_TOLERANCE_BITS:
            raise ValueError("perplexity must be 2^loss_bits; the loss must be in bits")
        return self


class Training(Cell):
    """A validation during a training."""

    position_method: Text
    train_length: PositiveCount
    updates: Count
    subset: Text
    loss_bits: Bits


class Evaluation(Cell):
    """The loss of a model on a split."""

    position_method: Text
    train_length: PositiveCount
    length: PositiveCount
    stride: PositiveCount
    subset: Text
    tokens: PositiveCount
    loss_bits: Bits
    perplexity: Positive


class PositionLoss(Evaluation):
    """The loss at some of the positions in the windows."""

    perplexity: Positive = _ABSENT
    position_from: Count
    position_to: PositiveCount

    @model_validator(mode="after")
    def _positions_lie_in_the_window(self) -> PositionLoss:
        if not self.position_from < self.position_to <= self.length:
            raise ValueError("must satisfy position_from < position_to <= length")
        return self


class ProbeAccuracy(Cell):
    """How much of a string a model repeats."""

    position_method: Text
    train_length: PositiveCount
    length: PositiveCount
    depth: Share
    gap: Count
    trials: PositiveCount
    accuracy: Share
    chance: Share


class Benchmark(Cell):
    """A speed."""

    name: Text
    baseline: Text | None
    ratio: Positive | None


AnyCell = TypeVar("AnyCell", bound=Cell)


class Document(JsonObject, Generic[AnyCell]):
    """A document of one kind."""

    schema_: Literal["alibi_fairseq/results"] = Field(alias="schema")
    version: Literal[1]
    kind: Literal["evaluation", "training", "benchmark", "position_loss", "probe"]
    corpus: Text
    provenance: Provenance
    cells: list[AnyCell]


KINDS: Mapping[str, type[Document]] = {
    "evaluation": Document[Evaluation],
    "training": Document[Training],
    "benchmark": Document[Benchmark],
    "position_loss": Document[PositionLoss],
    "probe": Document[ProbeAccuracy],
}

# The keys that say which measurement a cell is: no two cells of a document agree in all of them.
_RUN = (
    *("model", "position_method", "train_length", "checkpoint", "updates", "seed"),
    *("precision", "model_overrides", "documents", "score_from", "score_to"),
)
_IDENTITY = {
    "evaluation": (*_RUN, "subset", "length", "stride", "shard"),
    "training": (*_RUN, "subset", "length"),
    "position_loss": (*_RUN, "subset", "length", "stride", "shard", "position_from"),
    "probe": (*_RUN, "length", "depth"),
}
# In a benchmark whatever is not measured describes the case: all text, flags and whole numbers.
_MEASURED = (
    *("tokens_per_second", "step_ms", "peak_memory_mb", "seconds", "round_seconds", "ratio"),
)


def cell_identity(kind: str, cell: dict) -> tuple:
    """What distinguishes this cell from the others of its document, as (key, value) pairs."""
    if kind == "benchmark":
        keys = [k for k, v in sorted(cell.items()) if not isinstance(v, float)]
        return tuple((k, cell[k]) for k in keys if k not in _MEASURED and cell[k] is not None)
    return tuple((k, cell[k]) for k in _IDENTITY[kind] if cell.get(k) is not None)


def new_document(kind: str, corpus: str, provenance: dict, cells: list[dict]) -> dict:
    """A valid document of this project's schema.

    Args:
        kind: ``evaluation``, ``training``, ``benchmark``, ``position_loss`` or ``probe``.
        corpus: name of the text measured on, e.g. ``wikitext-103``.
        provenance: as :func:`alibi_fairseq.results.provenance.collect_provenance` gives it.
        cells: the measurements.

    Raises:
        BadInput: naming the key that is wrong.
    """
    document = {"schema": SCHEMA, "version": VERSION, "kind": kind, "corpus": corpus}
    return validate_document({**document, "provenance": provenance, "cells": cells})


def validate_document(document: Any, source: str = "the results") -> dict:
    """Return the document if it is valid.

    Args:
        source: the file's name, for the error message.

    Raises:
        BadInput: naming ``source`` and the first key that is wrong.
    """
    kind: Any = document.get("kind") if isinstance(document, dict) else None
    model = KINDS[kind] if kind in list(KINDS) else Document[Cell]  # a list: kind may be unhashable
    check(model, document, source)
    seen: dict[tuple, int] = {}
    for index, cell in enumerate(document["cells"]):
        first = seen.setdefault(cell_identity(kind, cell), index)
        if first != index:
            raise BadInput(
                f"{source}: cells[{index}] measures the same thing as cells[{first}] "
                f"({_describe(kind, cell)}); keep one of them."
            )
    return document


def check(model: type[BaseModel], content: object, source: str) -> None:
    """Check the content of a file.

    Raises:
        BadInput: naming ``source``, the first key that is wrong, and what it should be.
    """
    try:
        model.model_validate(content)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in wrong["loc"])
        place = place.removeprefix(".") or "the content"
        if wrong["type"] == "missing":
            raise BadInput(f"{source}: {place} is missing.") from error
        what = wrong["msg"].removeprefix("Value error, ").rstrip(".")
        raise BadInput(f"{source}: {place} is {_show(wrong['input'])}: {what}.") from error


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
        for key in ("kind", "corpus", "data_sha256", "dictionary_sha256"):
            one, other = ((each | each["provenance"])[key] for each in (first, document))
            if one != other:
                raise BadInput(
                    f"Results with different {key} cannot be merged ({one} and {other})."
                )
        for cell in document["cells"]:
            kept = cells.setdefault(cell_identity(kind, cell), cell)
            if kept != cell:
                raise BadInput(
                    f"Two results to be merged differ for the same cell "
                    f"({_describe(kind, cell)}); leave one of them out."
                )
    provenance = _merge_provenance([document["provenance"] for document in documents])
    return new_document(kind, first["corpus"], provenance, list(cells.values()))


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
