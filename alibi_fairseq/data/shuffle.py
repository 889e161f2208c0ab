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
from collections.abc import Iterator
from itertools import accumulate
from operator import itemgetter
from pathlib import Path

import numpy as np

from ..files import atomic_write
from .documents import Portion, read
from .parallel import map_in_order
from .progress import progress

KEYS = 1 << 64  # keys are below it
RUN = 128_000_000  # bytes of text in one run


def write_runs(
    portions: list[Portion], seed: int, folder: Path, workers: int, total: int
) -> tuple[list[Path], dict]:
    """Read every portion into sorted runs, except those that an earlier call has finished.

    A run holds the texts; the file beside it, with ``.npy``, their keys and where each ends.

    Args:
        total: bytes of the files, about, for the progress bar.

    Returns:
        The runs, and the sums of their records: ``documents``, ``bytes``, ``replaced`` (documents
        with bytes that were not UTF-8) and ``seconds`` (processor time of all workers).
    """
    folder.mkdir(exist_ok=True)
    work = functools.partial(_write_runs_of, seed, folder)
    runs: list[Path] = []
    sums = {"documents": 0, "bytes": 0, "replaced": 0, "seconds": 0.0}
    with progress(total, "reading") as bar:
        for records in map_in_order(work, portions, workers):
            for record in records:
                runs.append(folder / record["name"])
                for name in sums:
                    sums[name] += record[name]
                bar.update(record["bytes"])
    return runs, sums


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


def _write_runs_of(seed: int, folder: Path, portion: Portion) -> list[dict]:
    stem = f"{portion.file:05d}-{portion.start:015d}"
    records: list[dict] = []
    while (path := folder / f"{stem}-{len(records):05d}.run.json").exists():
        records.append(json.loads(path.read_text()))
    if records and records[-1]["last"]:
        return records
    behind = offset = records[-1]["end"] if records else -1  # of the last document that is kept
    run: list[tuple[int, bytes]] = []
    size, begun = 0, time.process_time()

    def flush(last: bool) -> None:
        nonlocal size, begun
        name = f"{stem}-{len(records):05d}.run"
        _write_run(folder / name, run)
        replaced = sum(b"\xef\xbf\xbd" in text for _, text in run)
        record = {"name": name, "last": last, "end": offset, "replaced": replaced}
        record |= {"documents": len(run), "bytes": size, "seconds": time.process_time() - begun}
        with atomic_write(folder / f"{name}.json") as stream:
            json.dump(record, stream)
        records.append(record)
        run.clear()
        size, begun = 0, time.process_time()

    for document in read(portion):
        if document.offset <= behind:
            continue
        if run and size + len(document.text) > RUN:
            flush(last=False)
        offset = document.offset
        run.append((_key(seed, portion.file, offset), document.text))
        size += len(document.text)
    flush(last=True)
    return records


def _write_run(path: Path, run: list[tuple[int, bytes]]) -> None:
    run.sort(key=itemgetter(0))
    with atomic_write(path, "wb") as out:
        out.writelines(text for _, text in run)
    ends = accumulate(len(text) for _, text in run)
    with atomic_write(f"{path}.npy", "wb") as out:
        np.save(out, np.array([[key for key, _ in run], list(ends)], dtype=np.uint64))


def _key(seed: int, file: int, offset: int) -> int:
    digest = hashlib.blake2b(struct.pack("<qqq", seed, file, offset), digest_size=8).digest()
    return int.from_bytes(digest, "little")
