"""Assignment of books to splits, with books of the same text in one split."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from .corpus_builder import check_no_split_is_empty
from .sources import shuffle_key

#: Split of the blocks that are left out of the data.
DROPPED = "dropped"


@dataclass
class Book:
    """A book, or a block of a text without book boundaries.

    Attributes:
        name: name of the file.
        sha256: hash of the raw contents, which identifies the book in a list.
        group: index of the first book with its text.
        split: ``train``, ``valid``, ``test``, or ``dropped``.
        words: number of words of the normalized text.
    """

    name: str
    sha256: str
    group: int = 0
    split: str = "train"
    words: int = 0


def assign_book_splits(books: Sequence[Book], held_out: float, seed: int) -> None:
    """Set the split of each book. Books of the same text are in one split.

    Args:
        books: the books.
        held_out: percentage of the books for validation, and again for test; at least one book.
        seed: random seed.

    Raises:
        UserInputError: a split has no book.
    """
    groups: dict[int, list[Book]] = {}
    for book in books:
        groups.setdefault(book.group, []).append(book)

    def sort_key(members: list[Book]) -> bytes:
        return min(shuffle_key(seed, book.sha256) for book in members)

    wanted = max(1, round(len(books) * held_out / 100))
    missing = {"valid": wanted, "test": wanted}
    for members in sorted(groups.values(), key=sort_key):
        split = "train"
        for candidate in ("valid", "test"):
            if len(members) <= missing[candidate]:
                missing[candidate] -= len(members)
                split = candidate
                break
        for book in members:
            book.split = split
    check_no_split_is_empty([book.split for book in books])


def assign_block_splits(blocks: Sequence[Book], held_out: float, seed: int) -> None:
    """Set the split of consecutive blocks of a text whose book boundaries are unknown.

    Validation and test are one range of blocks each. The blocks next to a range are dropped, since
    the book at its edge would be in two splits. Blocks that repeat a held-out one are dropped too.

    Args:
        blocks: the blocks, in the order of the text.
        held_out: percentage of the blocks for validation, and again for test; at least one block.
        seed: random seed.

    Raises:
        UserInputError: there are too few blocks.
    """
    count = len(blocks)
    length = max(1, round(count * held_out / 100))
    if count < 2 * length + 4:  # with the blocks next to the held-out ones
        check_no_split_is_empty(["train"])
    rng = random.Random(seed)
    first = rng.randrange(0, count - 2 * length)
    second = rng.randrange(first + length + 1, count - length + 1)  # at least one block in between
    splits = rng.sample(("valid", "test"), 2)
    for split, start in zip(splits, (first, second)):
        for block in blocks[start : start + length]:
            block.split = split
        for edge in (start - 1, start + length):
            if 0 <= edge < count:
                blocks[edge].split = DROPPED
    _drop_repeated(blocks)
    check_no_split_is_empty([block.split for block in blocks])


def _drop_repeated(blocks: Sequence[Book]) -> None:
    """Drop blocks so that those of the same text are in one split.

    Validation keeps all of its blocks. Test drops those that repeat one of validation, and training
    those that repeat one of either.
    """
    split_of_group: dict[int, str] = {}
    for split in ("valid", "test", "train"):
        for block in blocks:
            if block.split != split:
                continue
            split_to_keep = split_of_group.setdefault(block.group, split)
            if split != split_to_keep:
                block.split = DROPPED
