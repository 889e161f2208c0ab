"""The Toronto BookCorpus, or any other books, as the paper uses them: whole books held out, 29k
sub-word vocabulary. See data-prep/bookcorpus/README.md.

The text of a book is normalised: punctuation by sacremoses (Moses' rules for English), white space
to single spaces, empty lines left out.

Near-duplicates stay in one split. A book is the set of hashes of its 8-grams of lower-cased words. Two
books are near-duplicates when the smaller one shares at least a twentieth of its set with the other
(containment, so that a volume is recognised in a collected edition). For a large corpus only every
M-th hash value is kept, the same ones in every book, which estimates the same ratio (Broder 1997, "On
the resemblance and containment of documents", https://doi.org/10.1109/SEQUEN.1997.666900).
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import os
import random
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from ..errors import UserInputError
from ..files import atomic_write, sha256_file
from ..results.manifest import other_name
from .pipeline import BYTES_PER_TOKEN, SPLITS, CorpusBuilder, option, percentage, positive
from .sources import (
    describe_files,
    file_list_digest,
    is_archive,
    naming,
    shuffle_key,
    single_spaced,
    text_bytes,
    text_files,
    texts,
)
from .tokenization import Tokenizer, WordPiece
from .truncation import take_until
from .worker_pool import map_in_order, progress

CORPUS = "bookcorpus"
LINES, TOKENS = 74_004_228, 984_846_357  # of the edition with one sentence per line
# That edition has no book boundaries. A block has the mean length of its 11,038 books.
LINES_PER_BLOCK = 6_704
_LINE_FILES = "books_large_p"  # books_large_p1.txt and books_large_p2.txt
_FEWEST = 20  # books or blocks of an excerpt: enough to hold some out

DROPPED = "dropped"
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


@dataclass
class BookCorpus(CorpusBuilder):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "books, sub-word level, whole books held out"

    sources: Sequence[str | os.PathLike] = option(
        "folder or archive (.tar.xz, .tar.gz, .zip …) with one .txt per book, or the "
        "file(s) of the Toronto BookCorpus with one sentence per line"
    )
    held_out: float = option(
        "percentage of the books held out for validation, and again for test",
        1.0,
        type=percentage,
        metavar="PERCENT",
    )
    vocab_size: int = option("dictionary entries of the sentencepiece BPE", 29_000, type=positive)
    wordpiece: str | os.PathLike | None = option(
        "use BERT's WordPiece with this vocab.txt instead of training sentencepiece",
        None,
        metavar="VOCAB_TXT",
    )
    seed: int = option("random seed of the split", 1)
    allow_other_text: bool = option(
        "accept plain files that are not the Toronto BookCorpus; the manifest says so", False
    )

    @functools.cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources)

    def settings(self) -> dict:
        if self.wordpiece:
            WordPiece(self.wordpiece)  # fails before hours of work
        return {
            "sources": file_list_digest(self.files),
            "seed": self.seed,
            "held_out": self.held_out,
            "vocabulary": None if self.wordpiece else self.vocab_size,
            "wordpiece": self.wordpiece and sha256_file(self.wordpiece),
        }

    def read(self, work: Path, workers: int) -> dict:
        lined = is_line_edition(self.sources)
        genuine = lined and self._is_genuine() and not self.excerpt
        folder, data_bin = work / "text", work / "data-bin"
        books = self._normalise(folder, lined, workers)
        _group(books, folder, workers)
        if lined:
            split_blocks(books, self.held_out, self.seed)
        else:
            split_books(books, self.held_out, self.seed)
            books.sort(key=lambda book: shuffle_key(self.seed, book.sha256))
        for split, path in self.texts(work).items():
            with open(path, "wb") as out:
                for book in books:
                    if book.split == split:
                        out.write((folder / f"{book.sha256}.txt").read_bytes())
                        out.write(b"" if lined else b"\n")
        rows = ["split\tsha256\tgroup\tname\n"]
        rows += [f"{b.split}\t{b.sha256}\t{b.group}\t{b.name}\n" for b in books]
        data_bin.mkdir(exist_ok=True)
        (data_bin / "splits.tsv").write_text("".join(rows), encoding="utf-8")
        shutil.rmtree(folder)
        held = Counter(book.split for book in books)
        return {
            "corpus": CORPUS if genuine else other_name(self.sources[0]),
            "identified_by": "lines and tokens" if genuine else None,
            "sources": describe_files(self.files),
            "seed": self.seed,
            "unit": "block of lines" if lined else "book",
            "near_duplicate_groups": len({book.group for book in books}),
            "more": {split: {"books": held[split]} for split in SPLITS},
        }

    def tokeniser(self, work: Path) -> Tokenizer:
        if self.wordpiece:
            return WordPiece(self.wordpiece)
        return self.trained(work, self.vocab_size)

    def _is_genuine(self) -> bool:
        """Whether lines and tokens, as ``wc`` counts them, are the Toronto BookCorpus's."""
        lines = tokens = 0
        for _, stream in _texts(self.files):
            for line in stream:
                lines += 1
                tokens += len(line.split())
        if (lines, tokens) == (LINES, TOKENS):
            return True
        if not self.allow_other_text:
            raise UserInputError(
                f"The text has {lines:,} lines and {tokens:,} tokens, expected {LINES:,} and "
                f"{TOKENS:,}: this is not the Toronto BookCorpus with one sentence per line; "
                "--allow-other-text prepares it under another name."
            )
        return False

    def _normalise(self, folder: Path, lined: bool, workers: int) -> list[Book]:
        folder.mkdir(exist_ok=True)
        units = _units(self.files, lined)
        if self.excerpt:
            most = self.excerpt * BYTES_PER_TOKEN
            units = take_until(units, most, lambda unit: len(unit[1]), _FEWEST)
        books = []
        with progress(text_bytes(self.files), "normalising") as bar:
            work = functools.partial(_normalise_unit, folder)
            for size, book in map_in_order(work, units, workers):
                bar.update(size)
                if book.words:
                    books.append(book)
        if not books:
            raise UserInputError(f"{self.sources[0]}: there are no words in it.")
        return books


def is_line_edition(sources: Sequence[str | os.PathLike]) -> bool:
    """Whether the sources are the edition without book boundaries: plain files, or named like its two."""
    if all(Path(source).is_file() and not is_archive(source) for source in sources):
        return True
    return all(
        Path(name).name.startswith(_LINE_FILES)
        for source in sources
        for name, _ in itertools.islice(_texts(text_files([source])), 3)
    )


def _texts(files: list[Path]) -> Iterator[tuple[str, BinaryIO]]:
    return itertools.chain.from_iterable(map(texts, files))


def _units(files: list[Path], lined: bool) -> Iterator[tuple[str, bytes]]:
    """(name, raw text) of each book; of each block for the edition without book boundaries."""
    if not lined:
        yield from ((Path(name).name, stream.read()) for name, stream in _texts(files))
        return
    lines = itertools.chain.from_iterable(stream for _, stream in _texts(files))
    for number in itertools.count():
        if not (block := list(itertools.islice(lines, LINES_PER_BLOCK))):
            return
        yield f"block-{number:05d}", b"".join(block)


def _normalise_unit(folder: Path, unit: tuple[str, bytes]) -> tuple[int, Book]:
    """Write a book's normalised text to ``FOLDER/<SHA-256 of raw>.txt``; returns its raw bytes."""
    name, raw = unit
    digest = hashlib.sha256(raw).hexdigest()
    path = folder / f"{digest}.txt"
    if not path.exists():
        with naming(name):
            text = raw.decode("utf-8-sig")
        normalise = _normaliser().normalize
        with atomic_write(path) as out:
            for line in io.StringIO(text, newline=None):
                if line := single_spaced(normalise(single_spaced(line))):
                    out.write(line + "\n")
    words = len(path.read_text(encoding="utf-8").split())
    return len(raw), Book(name, digest, words=words)


@functools.lru_cache
def _normaliser():
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer("en")


def _group(books: list[Book], folder: Path, workers: int) -> None:
    """Find the near-duplicates."""
    one_in = 1 + sum(book.words for book in books) // _KEPT
    paths = [folder / f"{book.sha256}.txt" for book in books]
    found = map_in_order(functools.partial(_shingles_of, one_in), paths, workers)
    for book, group in zip(books, near_duplicates(list(found))):
        book.group = group


def _shingles_of(one_in: int, path: Path) -> np.ndarray:
    return shingles(path.read_text(encoding="utf-8"), one_in)


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
        raise UserInputError(
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


def _check(books: Sequence[Book]) -> None:
    """Every split has a book."""
    if empty := [split for split in SPLITS if split not in {book.split for book in books}]:
        raise UserInputError(
            f"{len(books)} books in {len({book.group for book in books})} groups of "
            f"near-duplicates leave nothing for {' and '.join(empty)}; give more text."
        )


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
            counts.update(itertools.combinations(owners[start : start + length].tolist(), 2))
    return counts
