"""Beginnings of the documents of a prepared text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alibi_fairseq.data.iterables import take_until
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.data_folder import DOCUMENTS_FILE

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


def find_document_beginnings(
    lines: Sequence[Tensor], documents: int, tokens: int
) -> tuple[list[Tensor], list[int]]:
    """Return the first lines of documents, and the position of each document's first token in them.

    Args:
        lines: lines of a prepared text.
        documents: largest number of documents.
        tokens: tokens of each of them. Shorter documents are left out.
    """
    selected: list[Tensor] = []
    starts: list[int] = []
    size = 0
    for numbers in documents_in(lines):
        if len(starts) == documents:
            break
        document = [lines[number] for number in numbers]
        if sum(map(len, document)) < tokens:
            continue
        starts.append(size)
        beginning = list(take_until(document, tokens))
        selected += beginning
        size += sum(map(len, beginning))
    return selected, starts


def write_document_starts(data: Path, starts: dict[str, list[int]]) -> None:
    """Write the positions at which documents start, by split, into a data folder."""
    with atomic_write(data / DOCUMENTS_FILE) as stream:
        json.dump(starts, stream)
