"""The Toronto BookCorpus, or any other books, as in the paper: 29k subwords, whole books held out.

The text of a book is normalized. Its punctuation is normalized by sacremoses (Moses' rules for
English), whitespace becomes single spaces, and empty lines are dropped. The edition with one
sentence per line has no book boundaries, so it is divided into blocks of lines instead of books.
See data-prep/bookcorpus/README.md.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import io
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, NamedTuple

from ..errors import UserInputError
from ..files import atomic_write, sha256_file
from ..options import option, percentage, positive_integer
from ..progress_bar import make_progress_bar
from ..results.manifest import other_name
from .book_splits import Book, assign_block_splits, assign_book_splits
from .corpus_builder import BYTES_PER_TOKEN, SPLITS, CorpusBuilder
from .iterables import take_until
from .sources import (
    describe_files,
    errors_naming,
    file_list_digest,
    is_archive,
    open_texts,
    shuffle_key,
    single_spaced,
    text_bytes,
    text_files,
    text_name,
)
from .tokenization import Tokenizer, WordPiece
from .worker_pool import map_in_order

CORPUS = "bookcorpus"
#: Lines and tokens, as ``wc`` counts them, of the edition with one sentence per line.
LINES = 74_004_228
TOKENS = 984_846_357
#: Lines of a block of that edition, which has no book boundaries. It has 11,038 books, and this is
#: their mean length.
LINES_PER_BLOCK = 6_704
#: Units of the text in the manifest.
BLOCK = "block of lines"
BOOK = "book"
#: Beginning of the names of its files, books_large_p1.txt and books_large_p2.txt.
_LINE_FILES = "books_large_p"
#: Smallest number of books or blocks of an excerpt, enough to hold some out.
_MIN_EXCERPT_BOOKS = 20


class RawBook(NamedTuple):
    """Book or block of lines before its normalization.

    Attributes:
        source: its file, and its name there, for messages.
    """

    name: str
    content: bytes
    source: str


@dataclass
class BookCorpus(CorpusBuilder):
    """The Toronto BookCorpus with one sentence per line, or a collection of books."""

    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "books in subwords, with whole books held out"

    sources: Sequence[str | os.PathLike] = option(
        "folder or archive (.tar.xz, .tar.gz, .zip, …) with one .txt per book, or the files of the "
        "Toronto BookCorpus with one sentence per line",
        metavar="TEXT",
    )
    held_out: float = option(
        "percentage of the books held out for validation; the same percentage is held out for "
        "testing",
        1.0,
        type=percentage,
        metavar="PERCENT",
    )
    vocab_size: int = option(
        "number of dictionary entries of the sentencepiece BPE", 29_000, type=positive_integer
    )
    wordpiece: str | os.PathLike | None = option(
        "BERT's vocab.txt, to tokenize with WordPiece instead of sentencepiece",
        None,
        metavar="FILE",
    )
    seed: int = option("random seed of the split", 1)
    allow_other_text: bool = option(
        "accept files with one sentence per line that are not the Toronto BookCorpus; the manifest "
        "then has a different name",
        False,
    )

    @functools.cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources)

    @functools.cached_property
    def _unit(self) -> str:
        """Unit of the text that is held out as a whole."""
        return BLOCK if is_line_edition(self.sources) else BOOK

    def settings(self) -> dict:
        if self.wordpiece:
            WordPiece(self.wordpiece)  # raises an error now and not after hours of work
        return {
            "sources": file_list_digest(self.files),
            "seed": self.seed,
            "unit": self._unit,
            "held_out": self.held_out,
            "vocabulary": None if self.wordpiece else self.vocab_size,
            "wordpiece": self.wordpiece and sha256_file(self.wordpiece),
        }

    def write_normalized_text(self, work: Path, workers: int) -> dict:
        has_blocks = self._unit == BLOCK
        is_genuine = has_blocks and self._is_genuine() and not self.excerpt
        folder = work / "text"
        books = self._normalize(folder, has_blocks, workers)
        _group_duplicates(books, folder)
        if has_blocks:
            assign_block_splits(books, self.held_out, self.seed)
        else:
            assign_book_splits(books, self.held_out, self.seed)
            books.sort(key=lambda book: shuffle_key(self.seed, book.sha256))
        end_of_book = b"" if has_blocks else b"\n"
        for split, path in self.split_files(work).items():
            with open(path, "wb") as out:
                for book in books:
                    if book.split == split:
                        out.write((folder / f"{book.sha256}.txt").read_bytes())
                        out.write(end_of_book)
        _write_split_list(books, work / "data-bin" / "splits.tsv")
        shutil.rmtree(folder)
        books_in_split = Counter(book.split for book in books)
        return {
            "corpus": CORPUS if is_genuine else other_name(self.sources[0]),
            "identified_by": "lines and tokens" if is_genuine else None,
            "sources": describe_files(self.files),
            "seed": self.seed,
            "unit": self._unit,
            "different_texts": len({book.group for book in books}),
            "more": {split: {"books": books_in_split[split]} for split in SPLITS},
        }

    def build_tokenizer(self, work: Path) -> Tokenizer:
        if self.wordpiece:
            return WordPiece(self.wordpiece)
        return self.train_tokenizer(work, self.vocab_size)

    def _is_genuine(self) -> bool:
        """Return True if the text has the lines and tokens of the Toronto BookCorpus.

        Raises:
            UserInputError: the numbers differ, and ``allow_other_text`` is False.
        """
        lines = 0
        tokens = 0
        for _, stream in _open_files(self.files):
            for line in stream:
                lines += 1
                tokens += len(line.split())
        if (lines, tokens) == (LINES, TOKENS):
            return True
        if not self.allow_other_text:
            raise UserInputError(
                f"The text has {lines:,} lines and {tokens:,} tokens, expected {LINES:,} and "
                f"{TOKENS:,}: this is not the Toronto BookCorpus with one sentence per line. Pass "
                "--allow-other-text to prepare it under a different name."
            )
        return False

    def _normalize(self, folder: Path, has_blocks: bool, workers: int) -> list[Book]:
        """Write the normalized text of each book or block to a folder; return those with words."""
        folder.mkdir(exist_ok=True)
        raw_books = _read_blocks(self.files) if has_blocks else _read_books(self.files)
        if self.excerpt:
            raw_books = take_until(
                raw_books,
                self.excerpt * BYTES_PER_TOKEN,
                lambda raw_book: len(raw_book.content),
                _MIN_EXCERPT_BOOKS,
            )
        books = []
        with make_progress_bar(text_bytes(self.files), "normalizing") as bar:
            for size, book in map_in_order(_normalize_book, raw_books, workers, folder):
                bar.update(size)
                if book.words:
                    books.append(book)
        return books


def is_line_edition(sources: Sequence[str | os.PathLike]) -> bool:
    """Return True if the sources are the edition with one sentence per line.

    Sources that are all plain files, as opposed to folders and archives, are this edition.
    Otherwise, its two files are recognized by their names.
    """
    if all(Path(source).is_file() and not is_archive(source) for source in sources):
        return True
    for source in sources:
        # The first names decide: other collections begin with another name.
        for name, _ in itertools.islice(_open_files(text_files([source])), 3):
            if not Path(name).name.startswith(_LINE_FILES):
                return False
    return True


def _open_files(files: list[Path]) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the name and a stream of each text in several files."""
    for file in files:
        yield from open_texts(file)


def _read_books(files: list[Path]) -> Iterator[RawBook]:
    """Yield each book."""
    for file in files:
        for name, stream in open_texts(file):
            yield RawBook(Path(name).name, stream.read(), text_name(file, name))


def _read_blocks(files: list[Path]) -> Iterator[RawBook]:
    """Yield each block of :data:`LINES_PER_BLOCK` lines."""
    paths = ", ".join(map(str, files))
    lines = itertools.chain.from_iterable(_whole_lines(stream) for _, stream in _open_files(files))
    for number in itertools.count():
        block = b"".join(itertools.islice(lines, LINES_PER_BLOCK))
        if not block:
            return
        name = f"block-{number:05d}"
        yield RawBook(name, block, f"{name} of {paths}")


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file such that lines of the next file can follow.

    A byte order mark at the beginning is removed, and the last line gets a line feed.
    """
    for number, line in enumerate(stream):
        if number == 0:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line and not line.endswith(b"\n"):
            line += b"\n"
        if line:
            yield line


def _normalize_book(folder: Path, raw_book: RawBook) -> tuple[int, Book]:
    """Write a book's normalized text to ``FOLDER/<SHA-256 of raw>.txt``.

    Returns:
        The size of the raw text in bytes, and the book.
    """
    name, raw, source = raw_book
    digest = hashlib.sha256(raw).hexdigest()
    path = folder / f"{digest}.txt"
    if not path.exists():
        with errors_naming(source):
            text = raw.decode("utf-8-sig")
        normalize = _punctuation_normalizer().normalize
        with atomic_write(path) as out:
            for line in io.StringIO(text, newline=None):
                normalized = single_spaced(normalize(single_spaced(line)))
                if normalized:
                    out.write(normalized + "\n")
    words = len(path.read_text(encoding="utf-8").split())
    return len(raw), Book(name, digest, words=words)


@functools.lru_cache
def _punctuation_normalizer():
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer("en")


def _group_duplicates(books: list[Book], folder: Path) -> None:
    """Set the group of each book: the index of the first one with its normalized text."""
    first_with: dict[str, int] = {}
    for number, book in enumerate(books):
        digest = sha256_file(folder / f"{book.sha256}.txt")
        book.group = first_with.setdefault(digest, number)


def _write_split_list(books: list[Book], path: Path) -> None:
    """Write a table of the split, hash, duplicates, and name of each book."""
    rows = ["split\tsha256\tgroup\tname\n"]
    for book in books:
        rows.append(f"{book.split}\t{book.sha256}\t{book.group}\t{book.name}\n")
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(rows), encoding="utf-8")
