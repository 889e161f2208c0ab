"""Near-duplicates among books.

A book is represented by the set of hashes of its 8-grams of lowercased words. Two books are
near-duplicates if their texts are equal, which may be too short for an 8-gram, or if they share at
least a twentieth of the smaller set. This containment also recognizes a volume in a collected
edition. For a large corpus, only hashes divisible by M are used, which estimates the same fraction
(Broder 1997, "On the resemblance and containment of documents",
https://doi.org/10.1109/SEQUEN.1997.666900).
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections import Counter

import numpy as np

#: Number of words of an n-gram.
GRAM = 8
#: Fraction of the smaller book's 8-grams that near-duplicates share. Unrelated books share less
#: than a hundredth.
THRESHOLD = 0.05
#: Largest number of different books that may share an 8-gram. One in more books is boilerplate, and
#: ignored.
_BOILERPLATE = 200
#: Odd multiplier of the hash: 2**64 divided by the golden ratio.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def shingles(text: str, one_in: int = 1) -> np.ndarray:
    """Return the distinct hashes of a text's 8-grams that are divisible by ``one_in``.

    Returns:
        Sorted uint64, the same on every machine.
    """
    words = re.findall(r"\w+", text.lower())
    # crc32, since Python's hash() differs from run to run.
    code_of = {word: zlib.crc32(word.encode()) + 1 for word in set(words)}
    codes = np.array([code_of[word] for word in words], dtype=np.uint64)
    if len(codes) < GRAM:
        return np.empty(0, dtype=np.uint64)
    hashes: np.ndarray = np.zeros(len(codes) - GRAM + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for position in range(GRAM):
            # Codes of the words at this position of all 8-grams.
            codes_here = codes[position : position + len(hashes)]
            hashes = (hashes ^ codes_here) * _MULTIPLIER
            hashes ^= hashes >> np.uint64(29)
    return np.unique(hashes[hashes % np.uint64(one_in) == 0])


def near_duplicates(books: list[np.ndarray], digests: list[str]) -> list[int]:
    """Group books that are near-duplicates of each other, directly or through other books.

    Args:
        books: :func:`shingles` of each book.
        digests: hash of each book's text.

    Returns:
        For each book, the index of the first book of its group.
    """
    # A disjoint-set forest whose roots are the first books of the groups.
    parent: list[int] = []
    # Copies of a text are in its group already, and must not make its 8-grams boilerplate.
    different_books: list[np.ndarray] = []
    first_with: dict[str, int] = {}
    for number, (book_shingles, digest) in enumerate(zip(books, digests)):
        first = first_with.setdefault(digest, number)
        parent.append(first)
        different_books.append(book_shingles if first == number else book_shingles[:0])

    def root(book: int) -> int:
        while parent[book] != book:
            parent[book] = parent[parent[book]]
            book = parent[book]
        return book

    for (left, right), shared in _count_shared(different_books).items():
        if shared >= THRESHOLD * min(len(books[left]), len(books[right])):
            first = min(root(left), root(right))
            last = max(root(left), root(right))
            parent[last] = first
    return [root(book) for book in range(len(books))]


def _count_shared(books: list[np.ndarray]) -> Counter[tuple[int, int]]:
    """Count the hashes that each pair of books shares."""
    hashes = np.concatenate(books)
    owners = np.repeat(np.arange(len(books)), [len(book) for book in books])
    # Equal hashes become adjacent. The stable sort keeps the books of each hash in order.
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    owners = owners[order]
    # Start and length of each group of equal hashes.
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    lengths = np.diff(np.r_[starts, len(hashes)])
    is_shared = lengths > 1
    counts: Counter[tuple[int, int]] = Counter()
    for start, length in zip(starts[is_shared], lengths[is_shared]):
        if length <= _BOILERPLATE:
            sharing_books = owners[start : start + length].tolist()
            counts.update(itertools.combinations(sharing_books, 2))
    return counts
