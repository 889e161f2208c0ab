"""Identity of evaluated data: the contents of a split, and where its documents begin.

The evaluation itself and the runs of an experiment, which ask what is missing, both compare it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..data.probe_data import TEXT
from ..files import sha256_if_present
from ..results.data_folder import DOCUMENTS_FILE, DataFolder
from ..results.data_hashes import data_sha256_if_present


@dataclass(frozen=True)
class SplitIdentity:
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


def identify_split(folder: Path, split: str, boundaries: str | None) -> SplitIdentity:
    """Return the identity of a split of a data folder.

    Args:
        boundaries: key of :data:`.config.DOCUMENT_BOUNDARIES`; None: the split is one document.
    """
    sha256 = data_sha256_if_present(folder, [split])
    if sha256 is None or boundaries is None:
        return SplitIdentity(sha256)
    listed_sha256 = sha256_if_present(folder / DOCUMENTS_FILE)
    starts = _document_starts(folder, split, boundaries, (sha256, listed_sha256))
    return SplitIdentity(sha256, starts_sha256(split, starts))


@cache
def _document_starts(
    folder: Path, split: str, boundaries: str, hashes: tuple[str | None, ...]
) -> Sequence[int]:
    """Return where the documents begin in a split whose files have some hashes."""
    opened = DataFolder.open(folder)
    starts = opened.document_starts.get(split)
    if starts is None:
        from .split import find_document_starts, load_dictionary, load_split  # imports fairseq

        loaded = load_split(opened, split, load_dictionary(folder))
        starts = find_document_starts(opened, loaded, boundaries)
    return starts


def starts_sha256(split: str, starts: Sequence[int]) -> str:
    """Return the hash of the positions where the documents of a split begin."""
    return hashlib.sha256(json.dumps({split: list(starts)}).encode()).hexdigest()


def probe_splits(folder: Path) -> tuple[str, ...]:
    """Return the splits whose hash identifies the data of a probe.

    Test sequences are drawn at the evaluation, some of them from a running text.
    """
    has_text = (folder / f"{TEXT}.bin").is_file()
    return ("train", TEXT) if has_text else ("train",)


def identify_probe(folder: Path) -> SplitIdentity:
    """Return the identity of the data of a probe."""
    return SplitIdentity(data_sha256_if_present(folder, probe_splits(folder)))
