"""Documents, separated by empty lines, from text of any size, a few MB at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .sources import estimated_text_bytes, is_packed, single_spaced, texts

# A longer document or line is cut there: each part is then shuffled as a document of its own.
LONGEST_DOCUMENT = 1 << 20  # bytes
_LONGEST_LINE = 1 << 20
PORTION = 128_000_000  # bytes of a plain file that one process reads
_SEARCH = 1 << 23  # bytes in which a plain file's next document is looked for


@dataclass(frozen=True)
class Portion:
    """The range of a file that one process reads; packed files are not divided.

    Attributes:
        file: index of the file.
        start, end: bytes of the unpacked text; None: to its end.
    """

    file: int
    path: Path
    start: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Document:
    """Normalised text: UTF-8, single spaces, no empty lines, every line ended.

    Attributes:
        offset: where it begins in the unpacked text of its file.
    """

    offset: int
    text: bytes


def portions(files: list[Path], most: int | None = None) -> list[Portion]:
    """Cut plain files between documents into portions of similar size.

    Args:
        most: bytes of text after which reading ends, about.
    """
    found = []
    for number, path in enumerate(files):
        if most is not None and most <= 0:
            break
        size = estimated_text_bytes([path])
        if is_packed(path):
            found.append(Portion(number, path, 0, most))
        else:
            end = size if most is None else min(size, most)
            cuts = [0, *(_document_start(path, at) for at in range(PORTION, end, PORTION)), end]
            found += [Portion(number, path, a, b) for a, b in zip(cuts, cuts[1:]) if a < b]
        most = most and most - size
    return found


def read(portion: Portion) -> Iterator[Document]:
    """The documents of a portion in their order. Bytes that are not UTF-8 become U+FFFD."""
    if not is_packed(portion.path):
        with open(portion.path, "rb", buffering=1 << 20) as stream:
            stream.seek(portion.start)
            yield from _documents(stream, portion.start, portion.end)
        return
    offset = 0
    for _, text in texts(portion.path):
        begun = offset
        for document in _documents(text, begun, portion.end):
            yield document
            offset = document.offset + len(document.text)
        # The next text of an archive begins after everything that was read of this one.
        offset = max(offset, begun) + 1
        if portion.end is not None and offset >= portion.end:
            return


def _documents(stream: BinaryIO, position: int, end: int | None) -> Iterator[Document]:
    """Documents from the stream's place on; ``position`` is its number, ``end`` where to stop."""
    begun, size = position, 0
    lines: list[bytes] = []
    rest = b""
    while end is None or position < end or rest:
        raw = rest + stream.readline(_LONGEST_LINE)
        if not raw:
            break
        rest = b""
        if len(raw) >= _LONGEST_LINE and not raw.endswith(b"\n"):
            cut = raw.rfind(b" ") + 1 or len(raw)
            raw, rest = raw[:cut], raw[cut:]
        text = single_spaced(raw.decode("utf-8", "replace"))
        if lines and (not text or size + len(raw) > LONGEST_DOCUMENT):
            yield Document(begun, b"".join(lines))
            lines, size = [], 0
        if text:
            if not lines:
                begun = position
            lines.append(text.encode() + b"\n")
            size += len(raw)
        position += len(raw)
    if lines:
        yield Document(begun, b"".join(lines))


def _document_start(path: Path, boundary: int) -> int:
    """The first position at or after ``boundary`` that follows an empty line, if one is near."""
    with open(path, "rb", buffering=1 << 16) as stream:
        stream.seek(boundary - 1)
        while (piece := stream.readline(_LONGEST_LINE)) and not piece.endswith(b"\n"):
            pass
        line_start = stream.tell()
        while stream.tell() < line_start + _SEARCH:
            line = stream.readline(_LONGEST_LINE)
            if not line.strip():
                return stream.tell()
        return line_start
