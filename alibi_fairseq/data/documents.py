"""Documents, separated by empty lines, from text of any size, a few MB at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from alibi_fairseq.data.sources import is_archive, is_compressed, single_spaced, texts

# A longer document or line is cut there: each part is then shuffled as a document of its own.
LONGEST_DOCUMENT = 1 << 20  # bytes
_LONGEST_LINE = 1 << 20
PORTION = 128_000_000  # bytes of a plain file that one process reads
_SEARCH = 1 << 23  # bytes in which a plain file's next document is looked for


@dataclass(frozen=True)
class Portion:
    """The share of one process: a range of a plain file, or a whole compressed file or archive.

    Attributes:
        file: index of the file.
        start, end: bytes; ``end`` is None for a packed file.
    """

    file: int
    path: Path
    start: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Document:
    """
    Attributes:
        offset: where it begins in the unpacked text of its file.
        text: normalised UTF-8 (single spaces, no empty lines), every line ended.
    """

    offset: int
    text: bytes


def portions(files: list[Path]) -> list[Portion]:
    """Cut plain files between documents into portions of similar size."""
    found = []
    for number, path in enumerate(files):
        if is_archive(path) or is_compressed(path):
            found.append(Portion(number, path))
            continue
        size = path.stat().st_size
        cuts = [0, *(_document_start(path, at) for at in range(PORTION, size, PORTION)), size]
        found += [Portion(number, path, a, b) for a, b in zip(cuts, cuts[1:]) if a < b]
    return found


def read(portion: Portion) -> Iterator[Document]:
    """The documents of a portion in their order. Bytes that are not UTF-8 become U+FFFD."""
    if portion.end is not None:
        with open(portion.path, "rb", buffering=1 << 20) as stream:
            stream.seek(portion.start)
            yield from _documents(stream, portion.start, portion.end)
        return
    offset = 0
    for _, stream in texts(portion.path):
        begun = offset
        for document in _documents(stream, begun, None):
            yield document
            offset = document.offset + len(document.text)
        # The next text of an archive begins after everything that was read of this one.
        offset = max(offset, begun) + 1


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
        _skip_line(stream)
        line_start = stream.tell()
        while stream.tell() < line_start + _SEARCH:
            line = stream.readline(_LONGEST_LINE)
            if not line.strip():
                return stream.tell()
        return line_start


def _skip_line(stream: BinaryIO) -> None:
    while (piece := stream.readline(_LONGEST_LINE)) and not piece.endswith(b"\n"):
        pass
