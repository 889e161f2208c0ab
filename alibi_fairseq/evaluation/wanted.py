"""Results that an evaluation makes of a checkpoint, as the rule for what is missing compares them.

The evaluation and the runs of an experiment both ask :func:`..results.result.missing`. A checkpoint
is known by its contents: how it was trained is recorded with its results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..data.probe_data import TEXT
from ..positions.plugin_sources import plugin_sha256
from ..results.case import Case
from ..results.data_folder import DOCUMENTS_FILE, DataFolder
from ..results.data_hashes import data_folders, data_sha256
from ..results.result import Wanted
from ..results.series import Reading, Series
from ..results.settings import selection
from .config import SweepConfig, TextCase
from .weights import Weights


@dataclass(frozen=True)
class TextIdentity:
    """Contents of a split, and where its documents start.

    Attributes:
        sha256: hash of the split, or of the text file; None if the split does not exist.
        documents_sha256: hash of the positions where its documents start; None for a text that is
            one document, and for a text file, whose documents follow from the text.
        tokens_sha256: hash of the token IDs of a text file.
    """

    sha256: str | None
    documents_sha256: str | None = None
    tokens_sha256: str | None = None


def starts_sha256(split: str, starts: Sequence[int]) -> str:
    """Return the hash of the positions where the documents of a split begin."""
    return hashlib.sha256(json.dumps({split: list(starts)}).encode()).hexdigest()


def text_identity(data: str, split: str, boundaries: str | None) -> TextIdentity:
    """Return the identity of a split of a data folder.

    Args:
        data: fairseq's data argument, of whose folders an evaluation reads the first.
        boundaries: key of :data:`.config.DOCUMENT_BOUNDARIES`; None: the split is one document.
    """
    folder = data_folders(data)[0]
    names = [f"{split}.idx", f"{split}.bin"]
    if boundaries is not None:
        names.append(DOCUMENTS_FILE)
    return _text_identity(folder, split, boundaries, _versions(folder, names))


@cache
def _text_identity(
    folder: Path, split: str, boundaries: str | None, versions: tuple
) -> TextIdentity:
    """Return the identity of a split whose files have some versions."""
    if not versions:
        return TextIdentity(None)
    sha256 = data_sha256(folder, [split])
    if boundaries is None:
        return TextIdentity(sha256)
    opened = DataFolder.open(folder)
    starts = opened.document_starts.get(split)
    if starts is None:
        from .split import find_document_starts, load_dictionary, load_split  # imports fairseq

        loaded = load_split(opened, split, load_dictionary(folder))
        starts = find_document_starts(opened, loaded, boundaries)
    return TextIdentity(sha256, starts_sha256(split, starts))


def probe_subsets(folder: Path) -> tuple[str, ...]:
    """Return the splits whose hash identifies the data of a probe.

    Test sequences are drawn at the evaluation, some of them from a running text.
    """
    has_text = (folder / f"{TEXT}.bin").is_file()
    return ("train", TEXT) if has_text else ("train",)


def probe_sha256(data: str) -> str | None:
    """Return the hash of the data of a probe, or None if it does not exist."""
    folder = data_folders(data)[0]
    subsets = probe_subsets(folder)
    names = [f"{subset}.{suffix}" for subset in subsets for suffix in ("idx", "bin")]
    versions = _versions(folder, names)
    return _probe_sha256(folder, subsets, versions) if versions else None


@cache
def _probe_sha256(folder: Path, subsets: tuple[str, ...], versions: tuple) -> str | None:
    """Return the hash of the data of a probe whose files have some versions."""
    return data_sha256(folder, subsets)


def _versions(folder: Path, names: Sequence[str]) -> tuple:
    """Return name, size, and time of the last change of the files that exist."""
    versions = []
    for name in names:
        path = folder / name
        if path.is_file():
            status = path.stat()
            versions.append((name, status.st_size, status.st_mtime_ns))
    return tuple(versions)


def text_case(config: SweepConfig, case: TextCase, text: TextIdentity, corpus: str = "") -> Case:
    """Return the case of a measurement on a text.

    Boundaries of documents matter only if a range of each document is scored, or if the documents
    of a text file are tokenized one by one.

    Args:
        corpus: name of the text.
    """
    documents = None
    if config.has_scored_range or text.tokens_sha256 is not None:
        documents = document_boundaries(config, text)
    return Case(
        kind="text",
        text=text.sha256,
        split=case.subset,
        length=case.length,
        stride=case.stride,
        documents=documents,
        score_from=config.score_from or 0,
        score_to=config.score_to,
        tokens=text.tokens_sha256,
        corpus=corpus,
        separator=config.per_document or "",
    )


def probe_case(sha256: str | None, length: int, depth: float, corpus: str = "") -> Case:
    """Return the case of a measurement on a probe.

    Args:
        sha256: :func:`probe_sha256`.
        corpus: name of the probe.
    """
    return Case("probe", sha256, "", length, length, depth=depth, corpus=corpus)


def document_boundaries(config: SweepConfig, text: TextIdentity) -> str | None:
    """Return the boundaries of the documents whose losses are measured; None without documents."""
    return text.documents_sha256 or config.per_document


def wanted_result(
    config: SweepConfig, case: Case, weights: Weights, documents: str | None = None
) -> Wanted:
    """Return the result of a case that an evaluation of a checkpoint should have.

    Args:
        documents: boundaries of the documents (:func:`document_boundaries`).
    """
    settings = weights.series.settings
    overrides = dict(config.overrides or {})
    plugin = plugin_sha256(_method_names(weights.series, overrides))
    if plugin != settings.get("plugin"):  # edited since, or another method
        overrides["plugin"] = plugin
    reading = Reading(
        at=weights.at,
        selection=selection(settings) if weights.at == "best" else None,
        overrides=overrides,
        precision=config.precision,
        variant=weights.variant,
    )
    return Wanted(
        series=weights.series,
        seed=weights.seed,
        reading=reading,
        case=case,
        details=frozenset() if documents is None else frozenset({"documents"}),
        documents=documents,
        checkpoint_sha256=weights.sha256,
    )


def _method_names(series: Series, overrides: dict) -> Sequence[str]:
    """Return the position methods of the layers at evaluation."""
    if "position_method" in overrides:
        return str(overrides["position_method"]).split(",")
    return series.method.names
