"""The Toronto BookCorpus, or any other books, as the paper uses them: whole books held out, 29k
sub-word vocabulary. See data-prep/bookcorpus/README.md.

The text of a book is normalised: punctuation by sacremoses (Moses' rules for English), white space
to single spaces, empty lines left out.
"""

from __future__ import annotations

import functools
import hashlib
import io
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar

from ..errors import BadInput
from ..files import atomic_write, sha256_file
from ..results.manifest import other_name
from . import splits
from .excerpt import beginning
from .parallel import map_in_order, progress
from .pipeline import BYTES_PER_TOKEN, SPLITS, Corpus, option, positive
from .sources import (
    describe_files,
    fingerprint,
    is_archive,
    not_utf8,
    single_spaced,
    text_bytes,
    text_files,
    texts,
)
from .splits import Book
from .tokenisers import Tokeniser, WordPiece

CORPUS = "bookcorpus"
LINES, TOKENS = 74_004_228, 984_846_357  # of the edition with one sentence per line
# That edition has no book boundaries. A block has the mean length of its 11,038 books.
LINES_PER_BLOCK = 6_704
_LINE_FILES = "books_large_p"  # books_large_p1.txt and books_large_p2.txt
_FEWEST = 20  # books or blocks of an excerpt: enough to hold some out

Texts = Iterable[tuple[str, BinaryIO]]


@dataclass
class BookCorpus(Corpus):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "books, sub-word level, whole books held out"
    paper_bytes: ClassVar[float] = 5 * TOKENS  # about: a word and a space
    beside: ClassVar[tuple[str, ...]] = ("splits.tsv",)

    sources: Sequence[str | os.PathLike] = option(
        "folder or archive (.tar.xz, .tar.gz, .zip …) with one .txt per book, or the "
        "file(s) of the Toronto BookCorpus with one sentence per line"
    )
    held_out: float = option(
        "percentage of the books held out for validation, and again for test",
        1.0,
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
        if not 0 < self.held_out < 50:
            raise BadInput(f"--held-out is a percentage above 0 and below 50, not {self.held_out}.")
        if self.wordpiece:
            WordPiece(self.wordpiece)  # fails before hours of work
        return {
            "sources": fingerprint(self.files),
            "seed": self.seed,
            "held_out": self.held_out,
            "vocabulary": None if self.wordpiece else self.vocab_size,
            "wordpiece": self.wordpiece and sha256_file(self.wordpiece),
        }

    def read(self, work: Path, workers: int) -> dict:
        lined = is_line_edition(self.sources)
        genuine = lined and self._is_genuine() and not self.excerpt
        folder = work / "text"
        books = self._normalise(folder, lined, workers)
        _group(books, folder, workers)
        if lined:
            splits.split_blocks(books, self.held_out, self.seed)
        else:
            splits.split_books(books, self.held_out, self.seed)
        if not lined:
            books.sort(key=lambda book: splits.shuffle_key(self.seed, book.sha256))
        for split, path in self.texts(work).items():
            with atomic_write(path, "wb") as out:
                for book in books:
                    if book.split == split:
                        out.write((folder / f"{book.sha256}.txt").read_bytes())
                        out.write(b"" if lined else b"\n")
        splits.write_list(books, work / "splits.tsv")
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

    def tokeniser(self, work: Path) -> Tokeniser:
        if self.wordpiece:
            return WordPiece(self.wordpiece)
        return self.trained(work, self.vocab_size)

    def _is_genuine(self) -> bool:
        """Whether lines and tokens, as ``wc`` counts them, are the Toronto BookCorpus's."""
        lines = tokens = 0
        for _, stream in _texts(self.sources):
            for line in stream:
                lines += 1
                tokens += len(line.split())
        if (lines, tokens) == (LINES, TOKENS):
            return True
        if not self.allow_other_text:
            raise BadInput(
                f"The text has {lines:,} lines and {tokens:,} tokens, expected {LINES:,} and "
                f"{TOKENS:,}: this is not the Toronto BookCorpus with one sentence per line; "
                "--allow-other-text prepares it under another name, and a folder or archive with "
                "one file per book is split by books."
            )
        return False

    def _normalise(self, folder: Path, lined: bool, workers: int) -> list[Book]:
        folder.mkdir(exist_ok=True)
        units = _units(_texts(self.sources), lined)
        if self.excerpt:
            most = self.excerpt * BYTES_PER_TOKEN
            units = beginning(units, most, lambda unit: len(unit[1]), _FEWEST)
        books = []
        with progress(text_bytes(self.files), "normalising") as bar:
            work = functools.partial(_normalise_unit, folder)
            for size, book in map_in_order(work, units, workers):
                bar.update(size)
                if book.words:
                    books.append(book)
        if not books:
            raise BadInput(f"{self.sources[0]}: there are no words in it.")
        return books


def is_line_edition(sources: Sequence[str | os.PathLike]) -> bool:
    """Whether the sources are the edition without book boundaries: plain files, or named like its two."""
    if all(Path(source).is_file() and not is_archive(source) for source in sources):
        return True
    return all(
        Path(name).name.startswith(_LINE_FILES)
        for source in sources
        for name, _ in itertools.islice(_texts([source]), 3)
    )


def _texts(sources: Sequence[str | os.PathLike]) -> Texts:
    return (pair for file in text_files(sources) for pair in texts(file))


def _units(found: Texts, lined: bool) -> Iterator[tuple[str, bytes]]:
    """(name, raw text) of each book; of each block for the edition without book boundaries."""
    if not lined:
        for name, stream in found:
            yield Path(name).name, stream.read()
        return
    lines = itertools.chain.from_iterable(stream for _, stream in found)
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
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise not_utf8(name, error) from error
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
    one_in = splits.keep_one_in(sum(book.words for book in books))
    work = functools.partial(_shingles_of, one_in)
    paths = [folder / f"{book.sha256}.txt" for book in books]
    found = map_in_order(work, paths, workers)
    bar = progress(len(paths), "near-duplicates", "books", iterable=found)
    for book, group in zip(books, splits.near_duplicates(list(bar))):
        book.group = group


def _shingles_of(one_in: int, path: Path):
    return splits.shingles(path.read_text(encoding="utf-8"), one_in)
