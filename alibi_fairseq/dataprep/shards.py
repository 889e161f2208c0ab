"""Shuffled documents to fairseq's binary data: a validation set, parts in parallel, shards.

Tokens go straight into fairseq's own writer. By way of tokenised text and fairseq-preprocess the
same bytes come out, at a quarter of the speed (a test compares them). An item of the data is a
document: its lines, each with ``</s>``, and one more ``</s>`` at its end, as RoBERTa's recipe makes
of the empty line between documents.
"""

from __future__ import annotations

import functools
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alibi_fairseq.dataprep.parallel import map_in_order
from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.dataprep.shuffle import KEYS, SortedRun, documents_between
from alibi_fairseq.dataprep.tokenisers import END_OF_LINE, UNKNOWN, Tokeniser
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write

COUNTS = ("documents", "lines", "words", "bytes", "tokens", "unknown")
_BATCH = 1 << 20  # bytes of text tokenised at a time
_PART = (8_000_000, 128_000_000)  # bytes of text in a part, least and most

_tokeniser: Tokeniser  # of this process


@dataclass(frozen=True)
class Part:
    """What one process writes at a time: an interval of keys within one shard."""

    number: int
    shard: int
    low: int
    high: int


def plan(low: int, total: int, shards: int | None, shard_bytes: float) -> list[Part]:
    """Divide the keys from ``low`` on into shards, and those into parts.

    Args:
        total: bytes of text.
        shards: their number; from ``shard_bytes`` when it is None.
    """
    shards = shards or max(1, round(total / shard_bytes))
    size = min(max(total / 64, _PART[0]), _PART[1])
    each = max(1, math.ceil(total / shards / size))
    count = shards * each
    edges = [low + (KEYS - low) * part // count for part in range(count + 1)]
    return [Part(n, n // each, a, b) for n, (a, b) in enumerate(zip(edges, edges[1:]))]


def write_validation(
    prefix: Path, runs: list[SortedRun], tokeniser: Tokeniser, least: int, set_aside: int
) -> dict:
    """``PREFIX.bin`` and ``.idx`` of the documents with the lowest keys.

    Args:
        least: tokens; the line that reaches them is the last one, and the rest of its document
            is left out of the training data too.
        set_aside: the key at which documents must have sufficed.

    Returns:
        The counts, and ``next_key``, where the training data begins.
    """
    with _Writer(prefix, tokeniser) as writer:
        for key, text in documents_between(runs, 0, set_aside):
            writer.add([_cut(text, tokeniser, least - writer.counts["tokens"])])
            if writer.counts["tokens"] >= least:
                return {**writer.counts, "next_key": key + 1}
        raise BadInput(
            f"The text set aside for validation gave {writer.counts['tokens']:,} tokens instead "
            f"of {least:,}; give more text or fewer --valid-tokens."
        )


def write_parts(
    parts: list[Part],
    folder: Path,
    runs: list[SortedRun],
    load: Callable[..., Tokeniser],
    arguments: tuple,
    workers: int,
) -> list[dict]:
    """Tokenise every part into a file of its own, except those that an earlier call has finished.

    Returns:
        Per part the counts and ``seconds`` of processor time.
    """
    folder.mkdir(exist_ok=True)
    work = functools.partial(_write_part, folder, runs)
    records = []
    total = sum(run.path.stat().st_size for run in runs)
    with progress(total, "tokenising") as bar:
        for record in map_in_order(work, parts, workers, _load, (load, arguments)):
            records.append(record)
            bar.update(record["bytes"] - record["documents"])
    return records


def join_parts(
    parts: list[Part], folder: Path, destination: Path, entries: int, workers: int
) -> list[str]:
    """Join the parts of each shard to ``DESTINATION/shardNN/train``; deletes the parts.

    Args:
        entries: size of the dictionary.

    Returns:
        The names of the shards.
    """
    by_shard: dict[int, list[int]] = {}
    for part in parts:
        by_shard.setdefault(part.shard, []).append(part.number)
    digits = max(2, len(str(len(by_shard) - 1)))
    destination.mkdir(exist_ok=True)
    names = [f"shard{shard:0{digits}d}" for shard in by_shard]
    work = functools.partial(_join, folder, destination, entries)
    with progress(len(names), "joining", "shards") as bar:
        for _ in map_in_order(work, list(zip(names, by_shard.values())), workers):
            bar.update()
    return names


def move_validation(prefix: Path, shard: Path) -> None:
    """Move the validation set into the first shard, where fairseq looks for it."""
    for suffix in (".bin", ".idx"):
        if prefix.with_suffix(suffix).exists():
            os.replace(prefix.with_suffix(suffix), shard / f"valid{suffix}")


class _Writer:
    """Writes documents with fairseq's builder; ``PREFIX.bin`` and ``.idx`` appear when done.

    Attributes:
        counts: of what was written; ``lines`` and ``bytes`` with the empty line after each
            document.
    """

    def __init__(self, prefix: Path, tokeniser: Tokeniser):
        self._prefix, self._tokeniser = prefix, tokeniser
        self._attempt = prefix.with_name(f".{prefix.name}-{os.getpid()}")
        self.counts = dict.fromkeys(COUNTS, 0)

    def add(self, documents: list[bytes]) -> None:
        """Tokenise and write documents, each of which ends with a newline."""
        import torch

        lines = [text.decode().split("\n")[:-1] for text in documents]
        encoded = iter(self._tokeniser.encode([line for text in lines for line in text]))
        offset, counts = self._tokeniser.offset, self.counts
        end = END_OF_LINE - offset
        for text, own_lines in zip(documents, lines):
            ids: list[int] = []
            for _ in own_lines:
                ids += next(encoded)
                ids.append(end)
            ids.append(end)
            tokens = np.array(ids, dtype=np.int32) + offset
            self._builder.add_item(torch.from_numpy(tokens))
            counts["documents"] += 1
            counts["lines"] += len(own_lines) + 1
            counts["words"] += sum(len(line.split()) for line in own_lines)
            counts["bytes"] += len(text) + 1
            counts["tokens"] += len(ids)
            counts["unknown"] += int((tokens == UNKNOWN).sum())

    def __enter__(self) -> _Writer:
        self._builder = _builder(self._attempt, len(self._tokeniser.names) + self._tokeniser.offset)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        self._builder.finalize(f"{self._attempt}.idx")
        for suffix in (".bin", ".idx"):
            if kind:
                os.remove(f"{self._attempt}{suffix}")
            else:
                os.replace(f"{self._attempt}{suffix}", f"{self._prefix}{suffix}")


def _builder(prefix: Path, entries: int):
    from fairseq.data.indexed_dataset import make_builder

    return make_builder(f"{prefix}.bin", impl="mmap", vocab_size=entries)


def _cut(text: bytes, tokeniser: Tokeniser, least: int) -> bytes:
    """The document up to the line with which it has ``least`` tokens, as far as it has them."""
    lines = text.decode().split("\n")[:-1]
    tokens, kept = 1, 0
    for ids in tokeniser.encode(lines):
        tokens += len(ids) + 1
        kept += 1
        if tokens >= least:
            break
    return "".join(line + "\n" for line in lines[:kept]).encode()


def _load(load: Callable[..., Tokeniser], arguments: tuple) -> None:
    global _tokeniser
    _tokeniser = load(*arguments)


def _write_part(folder: Path, runs: list[SortedRun], part: Part) -> dict:
    prefix = folder / f"part{part.number:06d}"
    done = folder / f"{prefix.name}.json"
    if done.exists():
        return json.loads(done.read_text())
    begun = time.process_time()
    with _Writer(prefix, _tokeniser) as writer:
        for batch in _batches(documents_between(runs, part.low, part.high)):
            writer.add(batch)
    record = {**writer.counts, "seconds": time.process_time() - begun}
    with atomic_write(done) as stream:
        json.dump(record, stream)
    return record


def _batches(documents: list[tuple[int, bytes]]) -> Iterator[list[bytes]]:
    batch, size = [], 0
    for _, text in documents:
        batch.append(text)
        size += len(text)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _join(folder: Path, destination: Path, entries: int, task: tuple[str, list[int]]) -> None:
    name, numbers = task
    shard = destination / name
    if shard.exists():
        return
    attempt = folder / f".{name}-{os.getpid()}"
    attempt.mkdir()
    builder = _builder(attempt / "train", entries)
    prefixes = [str(folder / f"part{number:06d}") for number in numbers]
    for prefix in prefixes:
        builder.merge_file_(prefix)
    builder.finalize(str(attempt / "train.idx"))
    os.replace(attempt, shard)
    for prefix in prefixes:
        os.remove(f"{prefix}.bin")
        os.remove(f"{prefix}.idx")
