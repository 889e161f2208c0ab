"""Identity of evaluated data: the contents of a split, and where its documents begin.

The evaluation itself and the runs of an experiment, which ask what is missing, both compare it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.probe_data import TEXT
from ..files import sha256_if_present
from ..results.data_folder import DOCUMENTS_FILE, DataFolder
from ..results.data_hashes import data_sha256_if_present
from .documents import find_document_starts

if TYPE_CHECKING:
    from .split import Split


@dataclass(frozen=True)
class SplitIdentity:
    """Contents of a split, and where its documents begin.

    Attributes:
        sha256: hash of the split, of the text file, or of a probe's training data; None if there
            is no such split.
        documents: where its documents begin: the hash of their positions or, for a text file, the
            rule by which they follow from the text. None: it is one document.
        tokens_sha256: hash of the token IDs of a text file.
        starts: first position of each document, the first one 0.
    """

    sha256: str | None
    documents: str | None = None
    tokens_sha256: str | None = None
    starts: Sequence[int] = field(default=(0,), compare=False, repr=False)


def identify_split(
    folder: DataFolder, name: str, boundaries: str | None, split: Split | None = None
) -> SplitIdentity:
    """Return the identity of a split of a data folder.

    Args:
        name: name of the split.
        boundaries: key of :data:`.config.DOCUMENT_BOUNDARIES`; None: the split is one document.
        split: the split, if it has been read already.
    """
    sha256 = data_sha256_if_present(folder.path, [name])
    if sha256 is None or boundaries is None:
        return SplitIdentity(sha256)
    if split is not None:
        starts: Sequence[int] = find_document_starts(folder, split, boundaries)
    else:
        listed_sha256 = sha256_if_present(folder.path / DOCUMENTS_FILE)
        starts = _read_document_starts(folder.path, name, boundaries, (sha256, listed_sha256))
    documents = hashlib.sha256(json.dumps({name: list(starts)}).encode()).hexdigest()
    return SplitIdentity(sha256, documents, starts=starts)


@cache
def _read_document_starts(
    folder: Path, name: str, boundaries: str, hashes: tuple[str | None, ...]
) -> Sequence[int]:
    """Return where the documents begin in a split whose files have some hashes."""
    opened = DataFolder.open(folder)
    starts = opened.document_starts.get(name)
    if starts is None:
        from .split import load_dictionary, load_split  # imports fairseq

        split = load_split(opened, name, load_dictionary(folder))
        starts = find_document_starts(opened, split, boundaries)
    return starts


def probe_splits(folder: Path) -> tuple[str, ...]:
    """Return the splits whose hash identifies the data of a probe.

    Test sequences are drawn at the evaluation, some of them from a running text.
    """
    has_text = (folder / f"{TEXT}.bin").is_file()
    return ("train", TEXT) if has_text else ("train",)


def identify_probe(folder: Path) -> SplitIdentity:
    """Return the identity of the data of a probe."""
    return SplitIdentity(data_sha256_if_present(folder, probe_splits(folder)))
