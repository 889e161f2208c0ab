"""Shuffle of documents that do not fit into memory, by an external sort.

Each document gets a 64-bit key from the seed and its position in the input. The shuffled order is
the order of the keys. Reading writes *chunks*: documents that fit into memory, sorted by key. The
documents in a range of keys are then read from all chunks and merged. The order depends only on the
seed and the input, and not on memory, processes, or interruptions.
"""

from __future__ import annotations

import codecs
import hashlib
import struct
from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..completion_marker import CompletionMarker
from ..files import atomic_write
from ..progress_bar import make_progress_bar
from .iterables import batches
from .sources import is_unnamed_tar, open_texts, single_spaced, text_bytes
from .worker_pool import map_in_order

#: Number of possible keys; all keys are smaller.
KEYS = 1 << 64
#: Bytes of text in a chunk.
CHUNK_BYTES = 128_000_000
#: Bytes of text. A longer document is cut, and each part is shuffled as a document.
MAX_DOCUMENT_BYTES = 1 << 20
#: Bytes of text. A longer line is cut between words, or between characters if it has no space.
MAX_LINE_BYTES = 1 << 20
#: Number of input files whose chunks are in one folder. Atomic writes search their folder, so the
#: time per file would grow with the number of files.
_FILES_PER_FOLDER = 100


def read_documents(path: Path, most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the normalized text of each document in a file.

    Documents are separated by empty lines and end with their file. But in a compressed tar without
    the suffix of an archive, as of OpenWebText, each file is one document. The normalized text has
    single spaces and no empty lines, and each line ends with a line feed. Bytes that are not UTF-8
    become U+FFFD. A byte order mark at the beginning is removed.

    The offset of a document differs from that of all others in the file. In the first or only text
    of the file, it is the position of the document in bytes. In an archive, the offsets of the next
    text begin after the last document of the previous one.

    Args:
        path: a plain file, a compressed file, or an archive.
        most: about the number of bytes of text to read. None: all.
    """
    begin = 0
    empty_line_ends = not is_unnamed_tar(path)
    for _, stream in open_texts(path):
        end = begin
        for offset, text in _split_documents(stream, begin, most, empty_line_ends):
            yield offset, text
            end = offset + len(text)
        # A greater offset than that of any document so far.
        begin = end + 1
        if most is not None and begin >= most:
            return


def _split_documents(
    stream: BinaryIO, position: int, end: int | None, empty_line_ends: bool
) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the normalized text of each document in a stream.

    Args:
        stream: the stream.
        position: offset of the first byte of the stream.
        end: offset at which to stop reading. None: read all.
        empty_line_ends: True if an empty line ends a document.
    """
    document_begin = position
    size = 0
    lines: list[bytes] = []
    for offset, raw in _read_lines(stream, position, end):
        if offset == position:
            raw = raw.removeprefix(codecs.BOM_UTF8)
        text = single_spaced(raw.decode("utf-8", "replace"))
        is_end = empty_line_ends and not text
        if lines and (is_end or size + len(raw) > MAX_DOCUMENT_BYTES):
            yield document_begin, b"".join(lines)
            lines = []
            size = 0
        if text:
            if not lines:
                document_begin = offset
            lines.append(text.encode() + b"\n")
            size += len(raw)
    if lines:
        yield document_begin, b"".join(lines)


def _read_lines(stream: BinaryIO, position: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and the bytes of each line in a stream. Long lines are cut.

    Args:
        stream: the stream.
        position: offset of the first byte of the stream.
        end: offset at which to stop reading. None: read all.
    """
    rest = b""
    while end is None or position < end or rest:
        raw = rest + stream.readline(MAX_LINE_BYTES)
        if not raw:
            return
        rest = b""
        if len(raw) >= MAX_LINE_BYTES and not raw.endswith(b"\n"):
            cut = raw.rfind(b" ") + 1  # after the last space
            if cut == 0:
                cut = _length_of_whole_characters(raw)
            rest = raw[cut:]
            raw = raw[:cut]
        yield position, raw
        position += len(raw)


def _length_of_whole_characters(raw: bytes) -> int:
    """Return the number of bytes before an incomplete UTF-8 character at the end, if any."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(raw)
    incomplete, _ = decoder.getstate()
    return len(raw) - len(incomplete)


def write_sorted_chunks(
    files: list[Path], seed: int, folder: Path, workers: int, most: int | None = None
) -> int:
    """Write the documents of files to sorted chunks, unless an earlier call has.

    A chunk is a file with the texts. A second file, with the suffix ``.npy``, has their keys and
    the offsets of their ends. Both are in a subfolder.

    Args:
        files: the files.
        seed: random seed of the keys.
        folder: folder of the chunks.
        workers: number of processes.
        most: about the number of bytes of text to read in total. None: all.

    Returns:
        The number of documents with U+FFFD, the replacement of bytes that are not UTF-8.
    """
    folder.mkdir(exist_ok=True)
    tasks: list[tuple[int, Path, int | None]] = []
    remaining = most
    for number, path in enumerate(files):
        if remaining is None:
            tasks.append((number, path, None))
        elif remaining > 0:
            tasks.append((number, path, remaining))
            remaining -= text_bytes([path])
    replaced = 0
    with make_progress_bar(text_bytes(files), "reading") as bar:
        for sums in map_in_order(_write_chunks_of_file, tasks, workers, seed, folder):
            replaced += sums["replaced"]
            bar.update(sums["bytes"])
    return replaced


def chunks_in(folder: Path) -> list[Path]:
    """Return the chunks in a folder, in the order of the input."""
    return sorted(folder.glob("*/*.run"))


def _write_chunks_of_file(seed: int, folder: Path, task: tuple[int, Path, int | None]) -> dict:
    """Write the chunks of a file.

    Returns:
        ``bytes``, the size of the normalized text, and ``replaced``, the number of documents with
        U+FFFD.
    """
    file_number, path, most = task
    folder = folder / f"{file_number // _FILES_PER_FOLDER:05d}"
    marker = CompletionMarker(folder / f"{file_number:05d}.json")
    if not marker.holds():
        sums = {"bytes": 0, "replaced": 0}
        documents = (
            (_key(seed, file_number, offset), text) for offset, text in read_documents(path, most)
        )
        chunks = batches(documents, CHUNK_BYTES, lambda document: len(document[1]))
        for number, chunk in enumerate(chunks):
            sums["bytes"] += _write_chunk(folder / f"{file_number:05d}-{number:05d}.run", chunk)
            sums["replaced"] += sum("\ufffd".encode() in text for _, text in chunk)
        marker.write(sums)
    return marker.result


def _write_chunk(path: Path, chunk: list[tuple[int, bytes]]) -> int:
    """Sort documents by key, write them, and return the size of their texts in bytes."""
    chunk.sort(key=itemgetter(0))
    keys = [key for key, _ in chunk]
    ends = list(accumulate(len(text) for _, text in chunk))
    with atomic_write(f"{path}.npy", "wb") as out:
        np.save(out, np.array([keys, ends], dtype=np.uint64))
    with atomic_write(path, "wb") as out:
        out.writelines(text for _, text in chunk)
    return ends[-1]


def _key(seed: int, file_number: int, offset: int) -> int:
    """Return the key of a document, from the seed and the position of the document."""
    position = struct.pack("<qqq", seed, file_number, offset)
    digest = hashlib.blake2b(position, digest_size=8).digest()
    return int.from_bytes(digest, "little")


def documents_between(chunks: list[Path], low: int, high: int) -> list[tuple[int, bytes]]:
    """Return key and text of all documents with low ≤ key < high, in the shuffled order.

    Args:
        chunks: files of documents sorted by key.
        low, high: range of the keys, which are random.
    """
    documents: list[tuple[int, bytes]] = []
    for chunk in chunks:
        documents += _read_range(chunk, low, high)
    return sorted(documents, key=itemgetter(0))


def _read_range(chunk: Path, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    """Yield key and text of the documents of a chunk with low ≤ key < high."""
    keys, ends = np.load(f"{chunk}.npy", mmap_mode="r")
    first = int(np.searchsorted(keys, np.uint64(low)))
    last = len(keys)
    if high < KEYS:  # KEYS itself does not fit into uint64
        last = int(np.searchsorted(keys, np.uint64(high)))
    begin = int(ends[first - 1]) if first else 0
    with open(chunk, "rb") as stream:
        stream.seek(begin)
        for key, end in zip(keys[first:last].tolist(), ends[first:last].tolist()):
            yield key, stream.read(end - begin)
            begin = end
