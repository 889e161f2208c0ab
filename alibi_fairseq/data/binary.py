"""fairseq's binary data, written in parts by several processes and then joined.

Tokens go straight into fairseq's own writer. By way of tokenised text and fairseq-preprocess the
same bytes come out, at a quarter of the speed (a test compares them).
"""

from __future__ import annotations

import functools
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..results.stamps import Stamp, once
from .excerpt import beginning
from .parallel import map_in_order, progress
from .sources import not_utf8
from .tokenisers import END_OF_LINE, SPECIAL, Tokeniser

Item = TypeVar("Item")

COUNTS = ("lines", "words", "bytes", "tokens", "unknown")
_BATCH = 1 << 20  # bytes of text tokenised at a time
_PART = (8_000_000, 128_000_000)  # bytes of text in a part, least and most
_SUFFIXES = (".bin", ".idx")


@dataclass(frozen=True)
class Part:
    """A piece of ``TARGET.bin``, which one process writes.

    Attributes:
        items: gives its items. An item is one or more lines, each of which gets its ``</s>``.
    """

    target: str
    items: Callable[[], Iterable[list[str]]]


def part_bytes(total: int) -> float:
    """Bytes of text in each part of a text of that size."""
    return min(max(total / 64, _PART[0]), _PART[1])


def text_parts(path: Path, target: str) -> list[Part]:
    """The parts of a file of text; an item is a line."""
    size = path.stat().st_size
    cuts = [0]
    with open(path, "rb") as stream:
        while (at := cuts[-1] + round(part_bytes(size))) < size:
            stream.seek(at)
            stream.readline()
            cuts.append(stream.tell())
    return [
        Part(target, functools.partial(_lines, path, begin, end))
        for begin, end in zip(cuts, [*cuts[1:], size])
    ]


def _lines(path: Path, begin: int, end: int) -> Iterator[list[str]]:
    with open(path, "rb") as stream:
        stream.seek(begin)
        while begin < end:
            block = stream.read(min(_BATCH, end - begin))
            if not block.endswith(b"\n"):
                block += stream.readline()
            begin += len(block)
            try:
                text = block.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(path, error) from error
            # Universal newlines, as fairseq-preprocess reads.
            for line in io.StringIO(text, newline=None):
                yield [line.rstrip("\n")]


def binarise(
    parts: list[Part], folder: Path, destination: Path, tokeniser: Tokeniser, workers: int
) -> dict[str, dict]:
    """Tokenise every part to a file in ``folder``, and join them to ``DESTINATION/TARGET.bin``.

    Parts and files that an earlier call has finished are kept.

    Returns:
        For each target its :data:`COUNTS`, ``items`` and ``seconds`` of processor time.
    """
    folder.mkdir(exist_ok=True)
    written: dict[str, dict] = {}
    pieces: dict[str, list[Path]] = {}
    work = functools.partial(_write, folder, tokeniser)
    with progress(None, "tokenising") as bar:
        for part, (piece, counts) in zip(parts, map_in_order(work, enumerate(parts), workers)):
            pieces.setdefault(part.target, []).append(piece)
            sums = written.setdefault(part.target, dict.fromkeys(counts, 0))
            for name, count in counts.items():
                sums[name] += count
            bar.update(counts["bytes"])
    join = functools.partial(_join, folder, destination, tokeniser.entries)
    with progress(len(pieces), "joining", "files") as bar:
        for _ in map_in_order(join, pieces.items(), workers):
            bar.update()
    return written


def _write(folder: Path, tokeniser: Tokeniser, task: tuple[int, Part]) -> tuple[Path, dict]:
    number, part = task
    prefix = folder / f"part{number:06d}"
    make = functools.partial(_write_items, part.items(), prefix, tokeniser)
    return prefix, once(Stamp(prefix.with_suffix(".json")), make)


def _write_items(items: Iterable[list[str]], prefix: Path, tokeniser: Tokeniser) -> dict:
    import torch

    begun = time.process_time()
    counts: dict = dict.fromkeys((*COUNTS, "items"), 0)
    attempt = prefix.with_name(f".{prefix.name}-{os.getpid()}")
    builder = _builder(attempt, tokeniser.entries)
    end = END_OF_LINE - tokeniser.offset
    for batch in batches(items, _BATCH, lambda lines: sum(map(len, lines))):
        encoded = iter(tokeniser.encode([line for lines in batch for line in lines]))
        for lines in batch:
            ids: list[int] = []
            for line in lines:
                ids += next(encoded)
                ids.append(end)
                counts["words"] += len(line.split())
                counts["bytes"] += len(line.encode()) + 1
            tokens = np.array(ids, dtype=np.int32) + tokeniser.offset
            builder.add_item(torch.from_numpy(tokens))
            counts["items"] += 1
            counts["lines"] += len(lines)
            counts["tokens"] += len(ids)
            counts["unknown"] += int((tokens < SPECIAL).sum()) - len(lines)
    _finish(builder, attempt, prefix)
    return {**counts, "seconds": time.process_time() - begun}


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in lists, each to the item that brings its size to ``most``."""
    remaining = iter(items)
    while batch := list(beginning(remaining, most, size)):
        yield batch


def _join(folder: Path, destination: Path, entries: int, task: tuple[str, list[Path]]) -> None:
    target, pieces = task
    joined = destination / target
    if not joined.with_suffix(".idx").exists():
        joined.parent.mkdir(parents=True, exist_ok=True)
        attempt = folder / f".{target.replace('/', '-')}-{os.getpid()}"
        builder = _builder(attempt, entries)
        for piece in pieces:
            builder.merge_file_(str(piece))
        _finish(builder, attempt, joined)
    for piece in pieces:
        for suffix in _SUFFIXES:
            Path(f"{piece}{suffix}").unlink(missing_ok=True)


def _builder(prefix: Path, entries: int):
    from fairseq.data.indexed_dataset import make_builder

    return make_builder(f"{prefix}.bin", impl="mmap", vocab_size=entries)


def _finish(builder, attempt: Path, prefix: Path) -> None:
    builder.finalize(f"{attempt}.idx")
    for suffix in _SUFFIXES:
        os.replace(f"{attempt}{suffix}", f"{prefix}{suffix}")
