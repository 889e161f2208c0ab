"""Documents of any amount of text in a uniformly shuffled order, in bounded memory.

Documents are separated by empty lines. Each gets a 64-bit key from the seed and its place in the
input; the shuffled order is the order of the keys. Reading writes *runs*: documents that fit into
memory, sorted by key. Any interval of keys is then read back by taking its slice out of each run. So
the order depends on nothing but the seed and the input: not on memory, processes or interruptions.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..files import atomic_write
from ..results.stamps import Stamp, once
from .excerpt import batches
from .parallel import map_in_order, progress
from .sources import is_packed, single_spaced, text_bytes, texts

KEYS = 1 << 64  # keys are below it
RUN = 128_000_000  # bytes of text in one run
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


def portions(files: list[Path], most: int | None = None) -> list[Portion]:
    """Cut plain files, about the first ``most`` bytes of text, between documents into portions."""
    found = []
    for number, path in enumerate(files):
        if most is not None and most <= 0:
            break
        size = text_bytes([path])
        if is_packed(path):
            found.append(Portion(number, path, 0, most))
        else:
            end = size if most is None else min(size, most)
            cuts = [0, *(_document_start(path, at) for at in range(PORTION, end, PORTION)), end]
            found += [Portion(number, path, a, b) for a, b in zip(cuts, cuts[1:]) if a < b]
        most = most and most - size
    return found


def read(portion: Portion) -> Iterator[tuple[int, bytes]]:
    """(offset, text) of the documents of a portion in their order.

    The offset is where the document begins in the unpacked text of its file. The text has single
    spaces, no empty lines, and every line ended; bytes that are not UTF-8 become U+FFFD.
    """
    if not is_packed(portion.path):
        with open(portion.path, "rb", buffering=1 << 20) as stream:
            stream.seek(portion.start)
            yield from _documents(stream, portion.start, portion.end)
        return
    begin = 0
    for _, stream in texts(portion.path):
        end = begin
        for offset, text in _documents(stream, begin, portion.end):
            yield offset, text
            end = offset + len(text)
        # The next text of an archive begins after everything that was read of this one.
        begin = end + 1
        if portion.end is not None and begin >= portion.end:
            return


def _documents(stream: BinaryIO, position: int, end: int | None) -> Iterator[tuple[int, bytes]]:
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
            yield begun, b"".join(lines)
            lines, size = [], 0
        if text:
            if not lines:
                begun = position
            lines.append(text.encode() + b"\n")
            size += len(raw)
        position += len(raw)
    if lines:
        yield begun, b"".join(lines)


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


def write_runs(portions: list[Portion], seed: int, folder: Path, workers: int, total: int) -> int:
    """Read every portion into sorted runs, except those that an earlier call has finished.

    A run holds the texts; the file beside it, with ``.npy``, their keys and where each ends.

    Returns:
        The number of documents with bytes that were not UTF-8.
    """
    folder.mkdir(exist_ok=True)
    work = functools.partial(_write_runs_of, seed, folder)
    replaced = 0
    with progress(total, "reading") as bar:
        for record in map_in_order(work, portions, workers):
            replaced += record["replaced"]
            bar.update(record["bytes"])
    return replaced


def runs_in(folder: Path) -> list[Path]:
    """The runs, in the order of the input."""
    return sorted(folder.glob("*.run"))


def _write_runs_of(seed: int, folder: Path, portion: Portion) -> dict:
    stem = f"{portion.file:05d}-{portion.start:015d}"

    def write() -> dict:
        sums = {"bytes": 0, "replaced": 0}
        keyed = ((_key(seed, portion.file, offset), text) for offset, text in read(portion))
        for number, run in enumerate(batches(keyed, RUN, lambda document: len(document[1]))):
            sums["bytes"] += _write_run(folder / f"{stem}-{number:05d}.run", run)
            sums["replaced"] += sum(b"\xef\xbf\xbd" in text for _, text in run)
        return sums

    return once(Stamp(folder / f"{stem}.json"), write)


def _write_run(path: Path, run: list[tuple[int, bytes]]) -> int:
    """Write the documents in the order of their keys; returns their bytes."""
    run.sort(key=itemgetter(0))
    ends = list(accumulate(len(text) for _, text in run))
    with atomic_write(f"{path}.npy", "wb") as out:
        np.save(out, np.array([[key for key, _ in run], ends], dtype=np.uint64))
    with atomic_write(path, "wb") as out:
        out.writelines(text for _, text in run)
    return ends[-1]


def _key(seed: int, file: int, offset: int) -> int:
    digest = hashlib.blake2b(struct.pack("<qqq", seed, file, offset), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def documents_between(runs: list[Path], low: int, high: int) -> list[tuple[int, bytes]]:
    """(key, text) of all documents with low ≤ key < high, in the shuffled order."""
    found = [pair for run in runs for pair in _slice_of(run, low, high)]
    return sorted(found, key=itemgetter(0))


def _slice_of(run: Path, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    keys, ends = np.load(f"{run}.npy", mmap_mode="r")
    first = int(np.searchsorted(keys, np.uint64(low)))
    last = len(keys) if high >= KEYS else int(np.searchsorted(keys, np.uint64(high)))
    at = int(ends[first - 1]) if first else 0
    with open(run, "rb") as stream:
        stream.seek(at)
        for key, end in zip(keys[first:last].tolist(), ends[first:last].tolist()):
            yield key, stream.read(end - at)
            at = end
