"""Beginnings of the documents of a prepared text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserInputError
from ..files import atomic_write
from ..results.data_folder import DOCUMENTS_FILE
from .iterables import take_until

if TYPE_CHECKING:
    from torch import Tensor


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
    """Selection of the beginnings of documents, for :func:`.truncation.write_excerpt`.

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
