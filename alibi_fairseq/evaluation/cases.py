"""Cases of an evaluation, which follow from its settings and from the contents of its data.

The evaluation itself and the runs of an experiment, which ask what is missing, both list them here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal

from ..data.probe_data import PROBE_FILE, TEXT
from ..data.probes import DEPTHS
from ..results.case import Case
from ..results.data_folder import DOCUMENTS_FILE, DataFolder
from ..results.data_hashes import data_folders, data_sha256
from .config import SweepConfig


@dataclass(frozen=True)
class TextIdentity:
    """Contents of a split, and where its documents begin.

    Attributes:
        sha256: hash of the split, of the text file, or of a probe's training data; None if there
            is no such split.
        documents: where its documents begin: the hash of their positions or, for a text file, the
            rule by which they follow from the text. None: it is one document.
        tokens_sha256: hash of the token IDs of a text file.
    """

    sha256: str | None
    documents: str | None = None
    tokens_sha256: str | None = None


@dataclass(frozen=True)
class EvaluatedData:
    """Data of an evaluation, known by their contents.

    Attributes:
        kind: kind of its cases, as in :class:`..results.case.Case`.
        splits: contents of each split, by name. A probe has one split, without a name.
        corpus: name of the text or of the probe, which doesn't count.
    """

    kind: Literal["text", "probe"]
    splits: Mapping[str, TextIdentity]
    corpus: str = ""


def list_cases(config: SweepConfig, data: EvaluatedData) -> list[Case]:
    """Return the cases of an evaluation, each once.

    On a text, these are all combinations of split, length, and stride; on a probe, which has
    neither splits nor strides, of length and depth.
    """
    cases = _probe_cases(config, data) if data.kind == "probe" else _text_cases(config, data)
    return list(dict.fromkeys(cases))


def _text_cases(config: SweepConfig, data: EvaluatedData) -> list[Case]:
    """Return the cases of a text."""
    cases = []
    for split, (length, stride) in product(config.subsets, config.windows()):
        text = data.splits[split]
        # Otherwise, all tokens are scored in the same windows wherever documents begin.
        documents_count = config.has_scored_range or text.tokens_sha256 is not None
        case = Case(
            kind="text",
            text=text.sha256,
            split=split,
            length=length,
            stride=stride,
            documents=text.documents if documents_count else None,
            score_from=config.score_from or 0,
            score_to=config.score_to,
            tokens=text.tokens_sha256,
            corpus=data.corpus,
            separator=config.per_document or "",
        )
        cases.append(case)
    return cases


def _probe_cases(config: SweepConfig, data: EvaluatedData) -> list[Case]:
    """Return the cases of a probe, whose sequences are one window each."""
    ((split, text),) = data.splits.items()
    cases = []
    for length, depth in product(config.lengths, DEPTHS):
        case = Case(
            kind="probe",
            text=text.sha256,
            split=split,
            length=length,
            stride=length,
            depth=depth,
            corpus=data.corpus,
        )
        cases.append(case)
    return cases


def identify_data(data: str, config: SweepConfig, corpus: str = "") -> EvaluatedData:
    """Return the identity of the data that an evaluation reads.

    Args:
        data: fairseq's data argument, of whose folders an evaluation reads the first.
        config: settings of the evaluation, which say which splits, and where documents begin.
        corpus: name of the text or of the probe.
    """
    folder = data_folders(data)[0]
    if (folder / PROBE_FILE).is_file():
        return EvaluatedData("probe", {"": probe_identity(folder)}, corpus)
    splits = {}
    for split in config.subsets:
        splits[split] = text_identity(folder, split, config.per_document)
    return EvaluatedData("text", splits, corpus)


def text_identity(folder: Path, split: str, boundaries: str | None) -> TextIdentity:
    """Return the identity of a split of a data folder.

    Args:
        boundaries: key of :data:`.config.DOCUMENT_BOUNDARIES`; None: the split is one document.
    """
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


def starts_sha256(split: str, starts: Sequence[int]) -> str:
    """Return the hash of the positions where the documents of a split begin."""
    return hashlib.sha256(json.dumps({split: list(starts)}).encode()).hexdigest()


def probe_subsets(folder: Path) -> tuple[str, ...]:
    """Return the splits whose hash identifies the data of a probe.

    Test sequences are drawn at the evaluation, some of them from a running text.
    """
    has_text = (folder / f"{TEXT}.bin").is_file()
    return ("train", TEXT) if has_text else ("train",)


def probe_identity(folder: Path) -> TextIdentity:
    """Return the identity of the data of a probe."""
    subsets = probe_subsets(folder)
    names = [f"{subset}.{suffix}" for subset in subsets for suffix in ("idx", "bin")]
    return _probe_identity(folder, subsets, _versions(folder, names))


@cache
def _probe_identity(folder: Path, subsets: tuple[str, ...], versions: tuple) -> TextIdentity:
    """Return the identity of the data of a probe whose files have some versions."""
    return TextIdentity(data_sha256(folder, subsets) if versions else None)


def _versions(folder: Path, names: Sequence[str]) -> tuple:
    """Return name, size, and time of the last change of the files that exist."""
    versions = []
    for name in names:
        path = folder / name
        if path.is_file():
            status = path.stat()
            versions.append((name, status.st_size, status.st_mtime_ns))
    return tuple(versions)
