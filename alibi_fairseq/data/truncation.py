"""Excerpts of binary data.

Results on an excerpt are not results on its corpus. An excerpt therefore gets no copy of the
manifest, and results name it after its folder.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import atomic_folder
from .binarization import write_lines
from .iterables import take_until

if TYPE_CHECKING:
    from torch import Tensor


def load_lines(folder: Path, splits: Iterable[str]) -> dict[str, Sequence[Tensor]]:
    """Return the lines of each split that exists in a folder of fairseq's binary data."""
    from fairseq.data import data_utils

    lines_by_split = {}
    for split in splits:
        lines = data_utils.load_indexed_dataset(str(folder / split))
        if lines is not None:
            lines_by_split[split] = lines
    return lines_by_split


def first_lines(lines: Sequence[Tensor], tokens: int) -> Iterator[Tensor]:
    """Return an iterator over the first lines, until they have ``tokens`` tokens."""
    in_order = (lines[number] for number in range(len(lines)))
    return take_until(in_order, tokens)


def write_excerpt(
    source: Path,
    out: Path,
    lines_by_split: Mapping[str, Iterable[Tensor]],
    entries: int | None = None,
) -> None:
    """Write selected lines of binary data, with its dictionary.

    Args:
        source: folder of fairseq's binary data, from which the lines are.
        out: the folder to create or replace. It appears when it is complete.
        lines_by_split: selected lines of each split.
        entries: number of dictionary entries to keep, the most frequent ones. The others become
            ``<unk>``, as with ``fairseq-preprocess --nwordssrc``. None: all.
    """
    from fairseq.data import Dictionary

    with open(source / "dict.txt", encoding="utf-8") as stream:
        entries_to_keep = list(itertools.islice(stream, entries))  # the most frequent come first
    shutil.rmtree(out, ignore_errors=True)
    with atomic_folder(out) as folder:
        (folder / "dict.txt").write_text("".join(entries_to_keep), encoding="utf-8")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        num_entries = len(dictionary)
        for split, lines in lines_by_split.items():
            cut_lines = (line.where(line < num_entries, dictionary.unk()) for line in lines)
            write_lines(folder / split, cut_lines, num_entries)
