"""Excerpts of binary data.

Results on an excerpt are not results on its corpus. An excerpt therefore gets no copy of the
manifest, and results name it after its folder.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..files import atomic_folder
from .binarization import write_lines
from .iterables import take_until

#: Function that selects lines of a split.
LineSelection = Callable[[Sequence], Iterable]


def write_excerpt(
    source: Path, out: Path, selections: dict[str, LineSelection], entries: int | None = None
) -> None:
    """Copy selected lines of each split that exists.

    Args:
        source: folder of fairseq's binary data.
        out: the folder to create or replace. It appears when it is complete.
        selections: selection of lines by split.
        entries: number of dictionary entries to keep, the most frequent ones. The others become
            ``<unk>``, as with ``fairseq-preprocess --nwordssrc``. None: all.
    """
    from fairseq.data import Dictionary, data_utils

    with open(source / "dict.txt", encoding="utf-8") as stream:
        entries_to_keep = list(itertools.islice(stream, entries))  # the most frequent come first
    shutil.rmtree(out, ignore_errors=True)
    with atomic_folder(out) as folder:
        (folder / "dict.txt").write_text("".join(entries_to_keep), encoding="utf-8")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        num_entries = len(dictionary)
        for split, select in selections.items():
            lines = data_utils.load_indexed_dataset(str(source / split), dictionary)
            if lines is None:
                continue
            selected = (line.where(line < num_entries, dictionary.unk()) for line in select(lines))
            write_lines(folder / split, selected, num_entries)


def first_lines(tokens: int) -> LineSelection:
    """Return the selection of the first lines of a split, until they have ``tokens`` tokens."""

    def select(lines: Sequence) -> Iterable:
        in_order = (lines[number] for number in range(len(lines)))
        return take_until(in_order, tokens)

    return select
