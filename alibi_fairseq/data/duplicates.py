"""Near-duplicate books, found by the 8-grams of words that they share.

A book is the set of hashes of its 8-grams of lower-cased words. Two books are near-duplicates when
the smaller one shares at least a twentieth of its set with the other (containment, so that a volume is
recognised in a collected edition). For a large corpus only every M-th hash value is kept, the same
ones in every book, which estimates the same ratio (Broder 1997, "On the resemblance and
containment of documents", https://doi.org/10.1109/SEQUEN.1997.666900).
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from itertools import combinations

import numpy as np

GRAM = 8  # words
THRESHOLD = 0.05  # of the smaller book's 8-grams; unrelated books share less than a hundredth
_WIDESPREAD = 200  # books; 8-grams that more of them share are boilerplate
_KEPT = 20_000_000  # hashes in memory at a time, about
_MIX = np.uint64(0x9E3779B97F4A7C15)
_WORD = re.compile(r"\w+")


def keep_one_in(words: int) -> int:
    """M for a corpus of that size in words: 1 (exact) up to 20 million."""
    return 1 + words // _KEPT


def shingles(text: str, one_in: int = 1) -> np.ndarray:
    """The distinct hashes of a text's 8-grams, those divisible by ``one_in``; sorted uint64."""
    cache: dict[str, int] = {}
    words = _WORD.findall(text.lower())
    for word in words:
        if word not in cache:
            # crc32, not hash(): the same in every run and on every machine.
            cache[word] = zlib.crc32(word.encode()) + 1
    codes = np.fromiter(map(cache.__getitem__, words), dtype=np.uint64, count=len(words))
    if len(codes) < GRAM:
        return np.empty(0, dtype=np.uint64)
    grams: np.ndarray = np.zeros(len(codes) - GRAM + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for word in range(GRAM):
            grams = (grams ^ codes[word : word + len(grams)]) * _MIX
            grams ^= grams >> np.uint64(29)
    return np.unique(grams[grams % np.uint64(one_in) == 0])


def groups(books: list[np.ndarray]) -> list[int]:
    """For each book, the index of the first book of its group of near-duplicates.

    Args:
        books: :func:`shingles` of each.
    """
    leader = list(range(len(books)))

    def find(book: int) -> int:
        while leader[book] != book:
            leader[book] = leader[leader[book]]
            book = leader[book]
        return book

    def unite(one: int, other: int) -> None:
        first, second = sorted((find(one), find(other)))
        leader[second] = first

    first_with: dict[bytes, int] = {}
    distinct = []
    for number, book in enumerate(books):
        same = first_with.setdefault(book.tobytes(), number) if len(book) else number
        if same == number:
            distinct.append(number)
        else:
            unite(same, number)
    for (one, other), shared in _shared(books, distinct).items():
        if shared >= THRESHOLD * min(len(books[one]), len(books[other])):
            unite(one, other)
    return [find(book) for book in range(len(books))]


def _shared(books: list[np.ndarray], numbers: list[int]) -> dict[tuple[int, int], int]:
    """Pairs of books and how many hashes they share."""
    counts: Counter[tuple[int, int]] = Counter()
    if not numbers:
        return counts
    hashes = np.concatenate([books[n] for n in numbers])
    owners = np.repeat(np.array(numbers), [len(books[n]) for n in numbers])
    order = np.argsort(hashes, kind="stable")
    hashes, owners = hashes[order], owners[order]
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    lengths = np.diff(np.r_[starts, len(hashes)])
    for start, length in zip(starts[lengths > 1], lengths[lengths > 1]):
        if length <= _WIDESPREAD:
            counts.update(combinations(owners[start : start + length].tolist(), 2))
    return counts
