"""The split of each book: whole books, determined by a seed, written to a list that can be shared."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from ..files import atomic_write
from .pipeline import SPLITS

DROPPED = "dropped"
_HEADER = "split\tsha256\tgroup\tname"


@dataclass
class Book:
    """A book, or a block of a text without book boundaries.

    Attributes:
        name: file name, for people.
        sha256: hash of the raw contents, which identifies the book in a list.
        group: near-duplicates share it: the number of the first of them.
        split: ``train``, ``valid``, ``test`` or ``dropped``.
    """

    name: str
    sha256: str
    group: int = 0
    split: str = "train"


def shuffle_key(seed: int, sha256: str) -> bytes:
    """A sort key that depends only on the seed and the contents."""
    return hashlib.sha256(f"{seed} {sha256}".encode()).digest()


def split_books(books: Sequence[Book], held_out: float, seed: int) -> None:
    """Set the split of each book; near-duplicates stay together.

    Args:
        held_out: percent of the books for each of validation and test, at least one book.
    """
    members: dict[int, list[Book]] = {}
    for book in books:
        members.setdefault(book.group, []).append(book)
    wanted = max(1, round(len(books) * held_out / 100))
    missing = {"valid": wanted, "test": wanted}
    key = {g: min(shuffle_key(seed, b.sha256) for b in bs) for g, bs in members.items()}
    for group in sorted(members, key=key.__getitem__):
        size = len(members[group])
        split = next((s for s, left in missing.items() if size <= left), "train")
        if split != "train":
            missing[split] -= size
        for book in members[group]:
            book.split = split
    empty = set(SPLITS) - {book.split for book in books}
    if empty:
        raise BadInput(
            f"{len(books)} books in {len(members)} groups of near-duplicates are too few to hold "
            f"out {held_out} % for validation and as much for test; give more books."
        )


def split_blocks(blocks: Sequence[Book], held_out: float, seed: int) -> None:
    """Set the split of consecutive blocks of a text whose book boundaries are unknown.

    Validation and test are one run of blocks each. The blocks beside a run are dropped, because
    the book that crosses its edge would straddle; so are blocks that repeat a held-out one.

    Args:
        held_out: percent of the blocks for each of validation and test, at least one.
    """
    count = len(blocks)
    run = max(1, round(count * held_out / 100))
    if count < 2 * run + 4:
        raise BadInput(
            f"The text has {count} blocks; holding out {run} for validation, {run} for test and "
            f"the blocks beside them needs at least {2 * run + 4}; give more text."
        )
    draw = random.Random(seed)
    first = draw.randrange(0, count - 2 * run)  # one block at least between the two runs
    second = draw.randrange(first + run + 1, count - run + 1)
    starts = dict(zip(draw.sample(("valid", "test"), 2), (first, second)))
    for split, start in starts.items():
        for block in blocks[start : start + run]:
            block.split = split
        for edge in (start - 1, start + run):
            if 0 <= edge < count:
                blocks[edge].split = DROPPED
    taken: dict[int, str] = {}
    for split in ("valid", "test", "train"):
        for block in blocks:
            if block.split == split and taken.setdefault(block.group, split) != split:
                block.split = DROPPED
    empty = set(SPLITS) - {block.split for block in blocks}
    if empty:
        raise BadInput(
            "The text repeats itself so much that nothing is left for "
            f"{' and '.join(sorted(empty))}; give more text or another --seed."
        )


def write_list(books: Sequence[Book], path: Path) -> None:
    """One line per book: split, SHA-256, group, name."""
    with atomic_write(path) as stream:
        stream.write(_HEADER + "\n")
        for b in books:
            stream.write(f"{b.split}\t{b.sha256}\t{b.group}\t{b.name}\n")


def apply_list(books: Sequence[Book], path: Path) -> None:
    """Set the split of each book from a list that :func:`write_list` wrote for the same books."""
    try:
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        rows = [(split, sha256) for split, sha256, _, _ in (line.split("\t") for line in lines)]
    except ValueError:
        header, rows = "", []
    if header != _HEADER or not {split for split, _ in rows} <= {*SPLITS, DROPPED}:
        raise BadInput(
            f"--split-list {path}: not a split list (first line {_HEADER!r}, then one book each)."
        )
    listed, here = Counter(sha256 for _, sha256 in rows), Counter(book.sha256 for book in books)
    strangers = [book.name for book in books if book.sha256 not in listed]
    if strangers or listed - here:
        raise BadInput(
            f"--split-list {path} is for other books: {len(strangers)} of these {len(books)} are "
            f"not in it{f' (such as {strangers[0]})' if strangers else ''}, "
            f"{(listed - here).total()} of its books are not here."
        )
    split_of = {sha256: split for split, sha256 in rows}
    for book in books:
        book.split = split_of[book.sha256]
    inside: dict[int, str] = {}
    for book in books:
        if book.split != DROPPED and inside.setdefault(book.group, book.split) != book.split:
            raise BadInput(
                f"--split-list {path}: {book.name} is in {book.split}, but a near-duplicate of it "
                f"is in {inside[book.group]}."
            )
