"""A uniform shuffle of documents in bounded memory, however many there are.

Every document gets a 64-bit key from the seed and its place in the input; the shuffled order is
the order of the keys. Reading writes *runs*: the documents that fit into memory, sorted by key.
Any interval of keys is then read back by taking its slice out of each run. So the order depends on
nothing but the seed and the input: not on memory, not on processes, not on interruptions.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alibi_fairseq.data.documents import Portion, read
from alibi_fairseq.data.parallel import map_in_order
from alibi_fairseq.data.progress import progress
from alibi_fairseq.files import atomic_write

KEYS = 1 << 64  # keys are below it
RUN = 128_000_000  # bytes of text in one run


@dataclass(frozen=True)
class SortedRun:
    """A sorted run on disk: ``path`` holds the texts, ``path``.npy their keys and end offsets."""

    path: Path

    def between(self, low: int, high: int) -> Iterator[tuple[int, bytes]]:
        """(key, text) of the documents with low ≤ key < high, in order."""
        keys, ends = np.load(f"{self.path}.npy", mmap_mode="r")
        first = int(np.searchsorted(keys, np.uint64(low)))
        last = len(keys) if high >= KEYS else int(np.searchsorted(keys, np.uint64(high)))
        if first == last:
            return
        begin = int(ends[first - 1]) if first else 0
        with open(self.path, "rb") as stream:
            stream.seek(begin)
            block = memoryview(stream.read(int(ends[last - 1]) - begin))
        at = 0
        for key, end in zip(keys[first:last].tolist(), ends[first:last].tolist()):
            yield key, bytes(block[at : end - begin])
            at = end - begin


def write_runs(
    portions: list[Portion], seed: int, folder: Path, workers: int, total: int
) -> tuple[list[SortedRun], dict]:
    """Read every portion into sorted runs, except those that an earlier call has finished.

    Args:
        total: bytes of the files, about, for the progress bar.

    Returns:
        The runs, and the sums of their records: ``documents, bytes, replaced, seconds``
        (processor time of all workers; ``replaced``: documents with bytes that were not UTF-8).
    """
    folder.mkdir(exist_ok=True)
    work = functools.partial(_write_runs_of, seed, folder)
    runs: list[SortedRun] = []
    sums = {"documents": 0, "bytes": 0, "replaced": 0, "seconds": 0.0}
    with progress(total, "reading") as bar:
        for records in map_in_order(work, portions, workers):
            for record in records:
                runs.append(SortedRun(folder / record["name"]))
                for name in sums:
                    sums[name] += record[name]
                bar.update(record["bytes"])
    return runs, sums


def documents_between(runs: list[SortedRun], low: int, high: int) -> list[tuple[int, bytes]]:
    """(key, text) of all documents with low ≤ key < high, in the shuffled order."""
    found = [pair for run in runs for pair in run.between(low, high)]
    found.sort(key=lambda pair: pair[0])
    return found


def _write_runs_of(seed: int, folder: Path, portion: Portion) -> list[dict]:
    stem = f"{portion.file:05d}-{portion.start:015d}"
    records = _finished(folder, stem)
    if records and records[-1]["last"]:
        return records
    begun = time.process_time()
    behind = records[-1]["end"] if records else -1  # offset of the last document that is kept
    texts, keys, ends = bytearray(), array("Q"), array("Q")
    replaced = 0

    def flush(last: bool, offset: int) -> None:
        nonlocal begun, replaced
        name = f"{stem}-{len(records):05d}.run"
        _write_run(folder / name, texts, keys, ends)
        record = {"name": name, "last": last, "end": offset, "replaced": replaced}
        record |= {"documents": len(keys), "bytes": len(texts)}
        record["seconds"] = time.process_time() - begun
        with atomic_write(folder / f"{name}.json") as stream:
            json.dump(record, stream)
        records.append(record)
        texts.clear()
        del keys[:], ends[:]
        begun, replaced = time.process_time(), 0

    offset = behind
    for document in read(portion):
        if document.offset <= behind:
            continue
        if texts and len(texts) + len(document.text) > RUN:
            flush(False, offset)
        offset = document.offset
        texts += document.text
        keys.append(_key(seed, portion.file, offset))
        ends.append(len(texts))
        replaced += b"\xef\xbf\xbd" in document.text
    flush(True, offset)
    return records


def _finished(folder: Path, stem: str) -> list[dict]:
    records: list[dict] = []
    while (path := folder / f"{stem}-{len(records):05d}.run.json").exists():
        records.append(json.loads(path.read_text()))
    return records


def _write_run(path: Path, texts: bytearray, keys: array, ends: array) -> None:
    keys_now = np.array(keys, dtype=np.uint64)
    ends_now = np.array(ends, dtype=np.uint64)
    starts = np.concatenate([np.zeros(1, np.uint64), ends_now[:-1]]) if len(keys) else ends_now
    order = np.argsort(keys_now, kind="stable")
    with atomic_write(path, "wb") as out, memoryview(texts) as view:
        for start, end in zip(starts[order].tolist(), ends_now[order].tolist()):
            out.write(view[start:end])
    sorted_ends = np.cumsum((ends_now - starts)[order], dtype=np.uint64)
    with atomic_write(f"{path}.npy", "wb") as out:
        np.save(out, np.stack([keys_now[order], sorted_ends]))


def _key(seed: int, file: int, offset: int) -> int:
    digest = hashlib.blake2b(struct.pack("<qqq", seed, file, offset), digest_size=8).digest()
    return int.from_bytes(digest, "little")
