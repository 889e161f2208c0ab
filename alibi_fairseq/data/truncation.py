"""Texts and binary data cut short.

Results on an excerpt are not results on the corpus. So its folder's name is the text's name in all
results, and there is no manifest that could give it another.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..files import atomic_folder

if TYPE_CHECKING:
    from torch import Tensor

Item = TypeVar("Item")
#: What is kept of a split: its lines → some of them.
Choice = Callable[[Sequence], Iterable]


def take_until(
    items: Iterable[Item], most: int, size: Callable[[Any], int] = len, least: int = 1
) -> Iterator[Item]:
    """The first items, to the one that brings their size to ``most``, but at least N."""
    taken = 0
    for number, item in enumerate(items, 1):
        yield item
        taken += size(item)
        if taken >= most and number >= least:
            return


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in lists, each to the item that brings its size to ``most``."""
    remaining = iter(items)
    while batch := list(take_until(remaining, most, size)):
        yield batch


def excerpt(source: Path, out: Path, splits: dict[str, Choice], words: int | None = None) -> None:
    """Copy some of the lines of each split that exists.

    Args:
        source: a folder of fairseq's binary data.
        out: the folder to create or replace; it appears when it is complete.
        words: dictionary entries to keep, the most frequent ones; the others become ``<unk>``, as
            with ``fairseq-preprocess --nwordssrc``.
    """
    from fairseq.data import Dictionary, data_utils

    with open(source / "dict.txt", encoding="utf-8") as stream:
        kept_words = list(itertools.islice(stream, words))  # the most frequent first
    shutil.rmtree(out, ignore_errors=True)
    with atomic_folder(out) as folder:
        (folder / "dict.txt").write_text("".join(kept_words), encoding="utf-8")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        for split, choose in splits.items():
            lines = data_utils.load_indexed_dataset(str(source / split), dictionary)
            if lines is not None:
                entries = len(dictionary)
                kept = (line.where(line < entries, dictionary.unk()) for line in choose(lines))
                write_lines(folder / split, kept, entries)


def write_lines(prefix: Path, lines: Iterable[Tensor], entries: int) -> None:
    """Write fairseq's binary data, for a dictionary with that many entries."""
    from fairseq.data.indexed_dataset import make_builder

    builder = make_builder(f"{prefix}.bin", impl="mmap", vocab_size=entries)
    for line in lines:
        builder.add_item(line)
    builder.finalize(f"{prefix}.idx")


def first(tokens: int) -> Choice:
    """The first lines of a split, to the one that reaches this number of tokens."""
    return lambda lines: take_until((lines[number] for number in range(len(lines))), tokens)
