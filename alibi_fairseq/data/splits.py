"""The split of each document: whole ones are held out, drawn by a seed, near-duplicates together.

A book is the set of hashes of its 8-grams of lower-cased words. Two books are near-duplicates when
the smaller one shares at least a twentieth of its set with the other (containment, so that a volume is
recognised in a collected edition). For a large corpus only every M-th hash value is kept, the same
ones in every book, which estimates the same ratio (Broder 1997, "On the resemblance and
containment of documents", https://doi.org/10.1109/SEQUEN.1997.666900).
"""

from __future__ import annotations

import hashlib
import random
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from ..errors import BadInput
from ..files import atomic_write
from .pipeline import SPLITS

DROPPED = "dropped"
_HEADER = "split\tsha256\tgroup\tname"

GRAM = 8  # words
THRESHOLD = 0.05  # of the smaller book's 8-grams; unrelated books share less than a hundredth
_WIDESPREAD = 200  # books; 8-grams that more of them share are boilerplate
_KEPT = 20_000_000  # hashes in memory at a time, about
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Book:
    """A book, or a block of a text without book boundaries.

    Attributes:
        sha256: hash of the raw contents, which identifies the book in a list.
        group: near-duplicates share it: the number of the first of them.
        split: ``train``, ``valid``, ``test`` or ``dropped``.
        words: words of the normalised text.
    """

    name: str
    sha256: str
    group: int = 0
    split: str = "train"
    words: int = 0


def shuffle_key(seed: int, content: object) -> bytes:
    """A sort key that depends only on the seed and the contents, or their hash."""
    return hashlib.sha256(f"{seed} {content}".encode()).digest()


def split_documents(sizes: Sequence[int], held_out: float, seed: int) -> list[str] | None:
    """The split of each document, drawn in an order that depends on the seed.

    A document that would make a held-out split half as large again as requested stays in training.

    Args:
        held_out: percent of all bytes for each of validation and test.

    Returns:
        None if whole documents cannot be held out: there are too few, or they are too long.
    """
    wanted = sum(sizes) * held_out / 100
    found = ["train"] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda number: shuffle_key(seed, number))
    for split in ("valid", "test"):
        held = 0
        for number in order:
            if held >= wanted:
                break
            if found[number] == "train" and held + sizes[number] <= 1.5 * wanted:
                found[number] = split
                held += sizes[number]
        if held < wanted / 2:
            return None
    return found


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
    _check(books)


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
    _check(blocks)


def write_list(books: Sequence[Book], path: Path) -> None:
    """One line per book: split, SHA-256, group, name."""
    with atomic_write(path) as stream:
        stream.write(_HEADER + "\n")
        for b in books:
            stream.write(f"{b.split}\t{b.sha256}\t{b.group}\t{b.name}\n")


def _check(books: Sequence[Book]) -> None:
    """Every split has a book."""
    if empty := [split for split in SPLITS if split not in {book.split for book in books}]:
        raise BadInput(
            f"{len(books)} books in {len({book.group for book in books})} groups of "
            f"near-duplicates leave nothing for {' and '.join(empty)}; give more text."
        )


def keep_one_in(words: int) -> int:
    """M for a corpus of that size in words: 1 (exact) up to 20 million."""
    return 1 + words // _KEPT


def shingles(text: str, one_in: int = 1) -> np.ndarray:
    """The distinct hashes of a text's 8-grams, those divisible by ``one_in``; sorted uint64."""
    words = re.findall(r"\w+", text.lower())
    # crc32, not hash(): the same in every run and on every machine.
    code = {word: zlib.crc32(word.encode()) + 1 for word in set(words)}
    codes = np.array([code[word] for word in words], dtype=np.uint64)
    if len(codes) < GRAM:
        return np.empty(0, dtype=np.uint64)
    grams: np.ndarray = np.zeros(len(codes) - GRAM + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for word in range(GRAM):
            grams = (grams ^ codes[word : word + len(grams)]) * _MIX
            grams ^= grams >> np.uint64(29)
    return np.unique(grams[grams % np.uint64(one_in) == 0])


def near_duplicates(books: list[np.ndarray]) -> list[int]:
    """For the :func:`shingles` of each book, the first book of its group of near-duplicates."""
    leader = list(range(len(books)))

    def find(book: int) -> int:
        while leader[book] != book:
            leader[book] = leader[leader[book]]
            book = leader[book]
        return book

    for (one, other), shared in _shared(books).items():
        if shared >= THRESHOLD * min(len(books[one]), len(books[other])):
            first, second = sorted((find(one), find(other)))
            leader[second] = first
    return [find(book) for book in range(len(books))]


def _shared(books: list[np.ndarray]) -> Counter[tuple[int, int]]:
    """The number of hashes that each pair of books shares."""
    counts: Counter[tuple[int, int]] = Counter()
    hashes = np.concatenate(books)
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    owners = np.repeat(np.arange(len(books)), [len(book) for book in books])[order]
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    lengths = np.diff(np.r_[starts, len(hashes)])
    for start, length in zip(starts[lengths > 1], lengths[lengths > 1]):
        if length <= _WIDESPREAD:
            counts.update(combinations(owners[start : start + length].tolist(), 2))
    return counts
