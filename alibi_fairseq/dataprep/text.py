"""Counting lines, words and bytes: the denominators of word-level perplexity and bits per byte."""

from __future__ import annotations

import io
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.errors import BadInput


@dataclass
class TextCounts:
    """Sizes of a text as it is given to the tokeniser.

    Attributes:
        lines: lines, empty ones included; each becomes one ``</s>``.
        words: white-space separated words, line ends not counted.
        bytes: UTF-8 bytes, line ends included.
    """

    lines: int = 0
    words: int = 0
    bytes: int = 0

    def __add__(self, other: TextCounts) -> TextCounts:
        return TextCounts(
            self.lines + other.lines, self.words + other.words, self.bytes + other.bytes
        )

    def as_dict(self) -> dict:
        return asdict(self)


def count_text(path: str | os.PathLike, what: str = "counting") -> TextCounts:
    """Count a UTF-8 file, with a progress bar.

    Raises:
        BadInput: the file is not UTF-8.
    """
    counts = TextCounts(bytes=Path(path).stat().st_size)
    try:
        # Universal newlines, as fairseq-preprocess reads.
        with open(path, "rb") as raw, progress(counts.bytes, what) as bar:
            stream = io.TextIOWrapper(raw, encoding="utf-8")
            while block := stream.readlines(1 << 20):
                counts.lines += len(block)
                counts.words += sum(len(line.split()) for line in block)
                bar.update(raw.tell() - bar.n)
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error
    return counts


def not_utf8(name: str | os.PathLike, error: UnicodeDecodeError) -> BadInput:
    """The error for text in another encoding."""
    return BadInput(
        f"{name} is not UTF-8 text ({error.reason}); convert it first, "
        "e.g. with: iconv -f LATIN1 -t UTF-8."
    )


def single_spaced(line: str) -> str:
    """The line with every run of white space, of any kind, as one space and none at its ends."""
    return " ".join(line.split())
