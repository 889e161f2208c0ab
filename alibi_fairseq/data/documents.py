"""Documents of a corpus: samples of a raw text, and document beginnings of a prepared text."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserInputError
from ..files import atomic_folder, atomic_write
from ..results.completion import CompletionMarker
from ..results.data_folder import DOCUMENTS_FILE
from .custom_text import ENDINGS
from .iterables import take_until
from .sources import text_files, texts

if TYPE_CHECKING:
    from torch import Tensor

#: Beginning of a WikiText article: " = Title = ". A section has more marks: " = = Section = = ".
#: The match is empty, so a split at it keeps the title.
TITLE = re.compile(rb"(?=^ ?= (?!= ).* = ?$)", re.MULTILINE)


def sample_documents(
    sources: Sequence[str], folder: Path, boundaries: str, sample: int | None
) -> None:
    """Write a sample of documents, one file each, unless it is already complete.

    The order of the draw depends only on the contents of the documents.

    Args:
        sources: files, archives, or folders.
        folder: the folder to create or replace. A completion marker is written next to it.
        boundaries: ``files``: a file is a document. ``titles``: a title begins a document.
        sample: number of bytes to reach. None: write all documents.
    """
    by_title = boundaries == "titles"
    file_endings: tuple[str, ...]
    if by_title:
        file_endings = (".tokens",)
        ending_in_archives = ".tokens"
    else:
        file_endings = ENDINGS
        ending_in_archives = ".txt"
    files = text_files(sources, file_endings)
    settings = {"documents": boundaries, "sample": sample}
    marker = CompletionMarker(folder.with_suffix(".json"), settings, files)
    if folder.is_dir() and marker.holds():
        return
    documents: list[bytes] = []
    for file in files:
        for _, stream in texts(file, ending_in_archives):
            text = stream.read()
            if by_title:
                _, *articles = TITLE.split(text)  # text before the first title is no document
                documents += articles
            else:
                documents.append(text)
    hashed = [(hashlib.sha256(document).hexdigest(), document) for document in documents]
    shutil.rmtree(folder, ignore_errors=True)
    with atomic_folder(folder) as unfinished:
        size = 0
        for digest, document in sorted(hashed):
            if sample and size >= sample:
                break
            (unfinished / f"{digest[:16]}.txt").write_bytes(document)
            size += len(document)
    marker.write()


def documents_in(lines: Sequence) -> Iterator[list[int]]:
    """Yield the line numbers of each document of a prepared text.

    An empty line, which has only the end-of-sentence symbol, ends a document and is left out.
    """
    document: list[int] = []
    for number in range(len(lines)):
        if len(lines[number]) != 1:
            document.append(number)
        elif document:
            yield document
            document = []
    if document:
        yield document


class DocumentBeginnings:
    """Selection of the beginnings of documents, for :func:`.truncation.excerpt`.

    Args:
        source: folder of the binary data, for error messages.
        documents: number of documents to select.
        tokens: tokens of each of them. Shorter documents are left out.

    Attributes:
        starts: position of each document's first token in the excerpt.
    """

    def __init__(self, source: Path, documents: int, tokens: int):
        self.source = source
        self.documents = documents
        self.tokens = tokens
        self.starts: list[int] = []

    def __call__(self, lines: Sequence[Tensor]) -> list[Tensor]:
        """Return the selected lines of a split.

        Raises:
            UserInputError: the split has too few documents that are long enough.
        """
        self.starts = []
        selected: list[Tensor] = []
        size = 0
        for numbers in documents_in(lines):
            if len(self.starts) == self.documents:
                break
            document = [lines[number] for number in numbers]
            if sum(map(len, document)) < self.tokens:
                continue
            self.starts.append(size)
            beginning = list(take_until(document, self.tokens))
            selected += beginning
            size += sum(map(len, beginning))
        if len(self.starts) < self.documents:
            raise UserInputError(
                f"{self.source}: {len(self.starts)} documents of the test split have "
                f"{self.tokens:,} tokens, not {self.documents}. Ask for fewer or shorter "
                "documents, or provide more text."
            )
        return selected


def write_document_starts(data: Path, starts: dict[str, list[int]]) -> None:
    """Write the positions at which documents start, by split, into a data folder."""
    with atomic_write(data / DOCUMENTS_FILE) as stream:
        json.dump(starts, stream)
