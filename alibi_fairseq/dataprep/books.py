"""Books from a folder, an archive or one long file, normalised to one paragraph per line."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from alibi_fairseq.dataprep.sources import is_archive, text_files, texts
from alibi_fairseq.dataprep.text import not_utf8, single_spaced
from alibi_fairseq.files import atomic_write

# The edition of the Toronto BookCorpus with one sentence per line has no book boundaries. A block has
# the mean length of its 11,038 books: 74,004,228 / 11,038 lines.
LINES_PER_BLOCK = 6_704
_LINE_FILES = "books_large_p"  # books_large_p1.txt and books_large_p2.txt

Advance = Callable[[int], None]


def is_line_edition(paths: list[Path]) -> bool:
    """Whether the sources are the edition without book boundaries: plain files, or named like its two."""
    if all(path.is_file() and not is_archive(path) for path in paths):
        return True
    names = [Path(name).name for path in paths for name, _ in _streams(path, lambda _: None, 3)]
    return all(name.startswith(_LINE_FILES) for name in names)


def count_raw(paths: list[Path], advance: Advance) -> tuple[int, int]:
    """Lines and white-space separated tokens, as ``wc`` counts them."""
    lines = words = 0
    for path in paths:
        for _, stream in _streams(path, advance):
            while block := stream.readlines(1 << 22):
                lines += len(block)
                words += sum(len(line.split()) for line in block)
    return lines, words


def units(paths: list[Path], advance: Advance) -> Iterator[tuple[str, bytes]]:
    """(name, raw text) of each book; of each block for the edition without book boundaries."""
    if not is_line_edition(paths):
        for path in paths:
            for name, stream in _streams(path, advance):
                yield Path(name).name, stream.read()
        return
    lines = itertools.chain.from_iterable(s for path in paths for _, s in _streams(path, advance))
    number = 0
    while block := list(itertools.islice(lines, LINES_PER_BLOCK)):
        yield f"block-{number:05d}", b"".join(block)
        number += 1


def _streams(path: Path, advance: Advance, most: int | None = None) -> Iterator:
    found = (pair for file in text_files(path) for pair in texts(file, advance))
    return itertools.islice(found, most)


def normalise_to(folder: Path, name: str, raw: bytes) -> dict | None:
    """Write a book's normalised text to ``FOLDER/<SHA-256 of raw>.txt``.

    Normalised: punctuation by sacremoses (Moses' rules for English), white space to single spaces,
    empty lines left out.

    Returns:
        ``name``, ``sha256`` and ``words``; None for a book without words.

    Raises:
        BadInput: not UTF-8.
    """
    digest = hashlib.sha256(raw).hexdigest()
    path = folder / f"{digest}.txt"
    if not path.exists():
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise not_utf8(name, error) from error
        normaliser = _normaliser()
        with atomic_write(path) as out:
            for line in io.StringIO(text, newline=None):
                if line := single_spaced(normaliser.normalize(single_spaced(line))):
                    out.write(line + "\n")
    words = len(path.read_text(encoding="utf-8").split())
    return {"name": name, "sha256": digest, "words": words} if words else None


@lru_cache
def _normaliser():
    from sacremoses import MosesPunctNormalizer

    return MosesPunctNormalizer("en")
