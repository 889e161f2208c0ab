"""Binarization: text to fairseq's ``.bin`` and ``.idx`` files, in several processes.

The text is divided into parts. Each part is tokenized and written to a separate ``.bin`` and
``.idx`` file. The files of all parts of a target are then joined. fairseq-preprocess writes the
same bytes from tokenized text (a test compares them), at a quarter of this speed.
"""

from __future__ import annotations

import functools
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..completion_marker import CompletionMarker
from ..errors import UserInputError
from ..files import sync_files
from ..progress_bar import make_progress_bar
from .iterables import batches
from .tokenization import END_OF_LINE, SPECIAL, Tokenizer
from .worker_pool import map_in_order

if TYPE_CHECKING:
    from fairseq.data.indexed_dataset import MMapIndexedDataset
    from torch import Tensor

#: Bytes of text that are tokenized in one call.
_BATCH_BYTES = 1 << 20
#: Smallest and largest number of bytes of text in a part.
_PART_BYTES = (8_000_000, 128_000_000)


class Part(NamedTuple):
    """A part of a target file, written by one process.

    Attributes:
        target: name of the file without suffix, relative to the data folder: ``shard00/train``.
        items: function that returns the items of the part. It can be pickled (a
            ``functools.partial``), because a worker process calls it. An item is a list of lines;
            each line gets its ``</s>``.
    """

    target: str
    items: Callable[[], Iterable[list[str]]]


def part_bytes(total: int) -> float:
    """Return the number of bytes of text in each part of a text with ``total`` bytes.

    There are about 64 parts, unless these would be too small or too large.
    """
    smallest, largest = _PART_BYTES
    return min(max(total / 64, smallest), largest)


def text_parts(path: Path, target: str) -> list[Part]:
    """Divide a text file into parts at line ends. An item is a line.

    Args:
        path: the text file.
        target: target of the parts, see :class:`Part`.
    """
    size = path.stat().st_size
    length = round(part_bytes(size))
    parts = []
    begin = 0
    with open(path, "rb") as stream:
        while begin + length < size:
            stream.seek(begin + length)
            stream.readline()
            end = stream.tell()
            parts.append(Part(target, functools.partial(_line_items, path, begin, end)))
            begin = end
    parts.append(Part(target, functools.partial(_line_items, path, begin, size)))
    return parts


def _line_items(path: Path, begin: int, end: int) -> Iterator[list[str]]:
    """Yield each line that starts between two byte offsets, as an item.

    Args:
        path: text file.
        begin: offset at which a line starts.
        end: offset before which the last line starts.
    """
    with open(path, "rb") as stream:
        stream.seek(begin)
        position = begin
        # As for fairseq-preprocess, a line ends with \n, \r, or \r\n.
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline=""):
            yield [line.rstrip("\r\n")]
            position += len(line.encode())
            if position >= end:
                return


def binarize(
    parts: list[Part], folder: Path, destination: Path, tokenizer: Tokenizer, workers: int
) -> dict[str, Counter]:
    """Write the binary data of all parts, unless an earlier call has.

    Args:
        parts: parts of the text.
        folder: folder of the files of each part.
        destination: folder of the target files.
        tokenizer: tokenizer of the lines.
        workers: number of processes.

    Returns:
        For each split, the total of ``lines, words, bytes, tokens, unknown`` tokens and ``items``.
    """
    folder.mkdir(exist_ok=True)
    totals: dict[str, Counter] = {}
    prefixes_by_target: dict[str, list[Path]] = {}
    tasks = [(folder / f"part{number:06d}", part) for number, part in enumerate(parts)]
    counts_of_parts = map_in_order(_write_part, tasks, workers, tokenizer)
    with make_progress_bar(None, "tokenizing") as bar:
        for (prefix, part), counts in zip(tasks, counts_of_parts):
            prefixes_by_target.setdefault(part.target, []).append(prefix)
            split = Path(part.target).name
            totals.setdefault(split, Counter()).update(counts)
            bar.update(counts.get("bytes", 0))
    targets = prefixes_by_target.items()
    for _ in map_in_order(_join_parts, targets, workers, folder, destination, tokenizer.entries):
        pass
    return totals


def _write_part(tokenizer: Tokenizer, task: tuple[Path, Part]) -> dict:
    """Write the binary data of a part, unless an earlier call has, and return its counts."""
    prefix, part = task
    marker = CompletionMarker(prefix.with_suffix(".json"))
    if not marker.holds():
        counts: Counter[str] = Counter()
        write_lines(prefix, _tokenize(part.items(), tokenizer, counts), tokenizer.entries)
        sync_files([prefix.with_suffix(".bin"), prefix.with_suffix(".idx")])
        marker.write(counts)
    return marker.result


def _tokenize(
    items: Iterable[list[str]], tokenizer: Tokenizer, counts: Counter[str]
) -> Iterator[Tensor]:
    """Yield the dictionary indices of each item, and add its sizes to ``counts``.

    Args:
        items: lines of each item.
        tokenizer: tokenizer with its dictionary.
        counts: sums over all items, which are changed.
    """
    import torch

    for batch in batches(items, _BATCH_BYTES, lambda item: sum(map(len, item))):
        lines_of_batch: list[str] = []
        for item in batch:
            lines_of_batch += item
        encoded_lines = iter(tokenizer.encode(lines_of_batch))
        for item in batch:
            ids: list[int] = []
            for _ in item:
                ids += next(encoded_lines)
                ids.append(END_OF_LINE - tokenizer.offset)  # the offset is added to all IDs below
            indices = np.array(ids, dtype=np.int32) + tokenizer.offset
            _count_item(item, indices, tokenizer.unknown_index, counts)
            yield torch.from_numpy(indices)


def _count_item(
    item: list[str], indices: np.ndarray, unknown_index: int, counts: Counter[str]
) -> None:
    """Add the sizes of an item to ``counts``.

    Args:
        item: the lines.
        indices: dictionary indices of their tokens, including each ``</s>``.
        unknown_index: dictionary index of unknown tokens.
        counts: the counts to update.
    """
    counts["items"] += 1
    counts["lines"] += len(item)
    counts["words"] += sum(len(line.split()) for line in item)
    counts["bytes"] += sum(len(line.encode()) + 1 for line in item)
    counts["tokens"] += len(indices)
    # Special symbols are one </s> per line, and the unknown tokens. WordPiece's is not special.
    is_unknown = (indices < SPECIAL) | (indices == unknown_index)
    counts["unknown"] += int(is_unknown.sum()) - len(item)


def _join_parts(
    folder: Path, destination: Path, entries: int, target_parts: tuple[str, list[Path]]
) -> None:
    """Join the files of all parts of a target, unless an earlier call has, and delete them."""
    from fairseq.data.indexed_dataset import make_builder

    target, prefixes = target_parts
    marker = CompletionMarker(folder / f"{target.replace('/', '-')}.json")
    if not marker.holds():
        joined = destination / target
        joined.parent.mkdir(parents=True, exist_ok=True)
        builder = make_builder(f"{joined}.bin", impl="mmap", vocab_size=entries)
        for prefix in prefixes:
            builder.merge_file_(str(prefix))
        builder.finalize(f"{joined}.idx")
        sync_files([Path(f"{joined}.bin"), Path(f"{joined}.idx")])
        marker.write()
    for prefix in prefixes:
        prefix.with_suffix(".bin").unlink(missing_ok=True)
        prefix.with_suffix(".idx").unlink(missing_ok=True)


def write_lines(prefix: Path, lines: Iterable[Tensor], entries: int) -> None:
    """Write fairseq's binary data.

    Args:
        prefix: path of the files without suffix.
        lines: dictionary indices of each item, which fairseq calls a line.
        entries: number of dictionary entries, which determines the integer type.
    """
    from fairseq.data.indexed_dataset import make_builder

    builder = make_builder(f"{prefix}.bin", impl="mmap", vocab_size=entries)
    for line in lines:
        builder.add_item(line)
    builder.finalize(f"{prefix}.idx")


def check_indexes(folder: Path) -> None:
    """Check the index of each file of binary data in a folder and its shards.

    Raises:
        UserInputError: see :func:`check_index`.
    """
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    for path in sorted(folder.rglob("*.idx")):
        check_index(path, MMapIndexedDataset.Index(str(path)))


def check_index(path: str | os.PathLike, index: MMapIndexedDataset.Index) -> int:
    """Check the position of the last item, which overflows (facebookresearch/fairseq#5532).

    Args:
        path: the index's file.
        index: its content.

    Returns:
        The number of bytes of the binary data.

    Raises:
        UserInputError: the position is not the size of all items before.
    """
    if not len(index):
        return 0
    size = np.dtype(index.dtype).itemsize
    end = int(index.sizes.sum(dtype=np.int64)) * size
    last, tokens = index[len(index) - 1]
    if int(last) + int(tokens) * size != end:
        raise UserInputError(
            f"{path} is damaged, as fairseq and earlier versions of this package write it for more "
            "than 2 GiB. Delete the data with all shards, and prepare it again with alibi-fairseq."
        )
    return end
