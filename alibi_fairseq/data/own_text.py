"""The user's own text: any files, whole documents held out, words or sentencepiece pieces.

A document is a file, or a member of an archive; white space is normalised to single spaces and empty
lines are dropped, except one at the end of each document. See docs/experiments.md.
"""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ..errors import BadInput
from ..files import atomic_write
from ..results.manifest import other_name
from .excerpt import beginning
from .parallel import progress
from .pipeline import BYTES_PER_TOKEN, SPLITS, Corpus, option, positive
from .sources import describe_files, not_utf8, single_spaced, text_bytes, text_files, texts
from .splits import split_documents
from .tokenisers import Tokeniser, Words

TOKENIZERS = ("sentencepiece", "words")
#: Files of a folder that are read; files named one by one may have any name.
ENDINGS = (".txt", ".md", ".rst")
_LEAST_BYTES = 10_000


@dataclass
class OwnText(Corpus):
    name: ClassVar[str] = "text"
    summary: ClassVar[str] = "your own text, in any files, with whole documents held out"

    sources: Sequence[str | os.PathLike] = option(
        "text files of any name, compressed ones (.gz, .xz, .bz2), archives with *.txt, "
        "or folders with *.txt, *.md and *.rst"
    )
    tokenizer: str = option(
        "a BPE trained on the training split, or words separated by white space",
        "sentencepiece",
        choices=TOKENIZERS,
    )
    vocab_size: int | None = option(
        "dictionary entries (default: all words; with sentencepiece one per 1,000 bytes of "
        "text, between 1,000 and 16,000)",
        None,
        type=positive,
    )
    held_out: float = option(
        "percentage of the text held out for validation, and again for test", 5.0, metavar="PERCENT"
    )
    seed: int = option("random seed of the split", 1)

    @cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources, ENDINGS)

    def settings(self) -> dict:
        if not 0 < self.held_out <= 25:
            raise BadInput(
                f"--held-out must be above 0 and at most 25 percent, not {self.held_out}."
            )
        self._described = describe_files(self.files)
        return {
            "sources": [source["sha256"] for source in self._described],
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocab_size,
            "held_out": self.held_out,
            "seed": self.seed,
        }

    def read(self, work: Path, workers: int) -> dict:
        joined = work / "all.txt"
        sizes = self._join(joined)
        split = split_documents(sizes, self.held_out, self.seed)
        # Too few documents: the last stretches are held out, so that long contexts remain coherent.
        held = int(sum(sizes) * self.held_out / 100)
        stretches = zip(SPLITS, (sum(sizes) - 2 * held, held, held))
        _deal(joined, zip(split, sizes) if split else stretches, self.texts(work))
        return {
            "corpus": other_name(self.sources[0]),
            "identified_by": None,
            "sources": self._described,
            "seed": self.seed,
            "unit": "document" if split else "stretch of text",
        }

    def tokeniser(self, work: Path) -> Tokeniser:
        if self.tokenizer == "words":
            return Words.of(work / "train.txt", work / "dict.txt", self.vocab_size)
        size = text_bytes(self.texts(work).values())
        entries = self.vocab_size or min(16_000, max(1_000, size // 1000))
        if not self.vocab_size:
            print(
                f"a dictionary of {entries:,} entries: one per 1,000 of the {size:,} bytes of "
                "text, between 1,000 and 16,000; --vocab-size asks for another",
                flush=True,
            )
        return self.trained(work, entries)

    def _join(self, joined: Path) -> list[int]:
        """Write all documents, or the first of them, to one file; returns the bytes of each."""
        lines: Iterable[bytes] = itertools.chain.from_iterable(map(_lines, self.files))
        if self.excerpt:
            lines = beginning(lines, self.excerpt * BYTES_PER_TOKEN)
        ends, line = [0], b""
        with (
            atomic_write(joined, "wb") as out,
            progress(text_bytes(self.files), "normalising") as bar,
        ):
            for line in lines:
                out.write(line)
                bar.update(len(line))
                if line == b"\n":
                    ends.append(out.tell())
            if line not in (b"", b"\n"):  # an excerpt ends within a document
                out.write(b"\n")
                ends.append(out.tell())
        if ends[-1] < _LEAST_BYTES:
            raise BadInput(
                f"{', '.join(map(str, self.sources))}: {ends[-1]:,} bytes of text are too few to "
                f"train and evaluate a model; at least {_LEAST_BYTES:,} are needed."
            )
        return [end - begin for begin, end in zip(ends, ends[1:])]


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of every document in a file, and an empty one behind each."""
    for name, stream in texts(file):
        empty = True
        try:
            for line in io.TextIOWrapper(stream, encoding="utf-8-sig"):
                if line := single_spaced(line):
                    yield line.encode() + b"\n"
                    empty = False
        except UnicodeDecodeError as error:
            raise not_utf8(name, error) from error
        if not empty:
            yield b"\n"


def _deal(joined: Path, spans: Iterable[tuple[str, int]], splits: dict[str, Path]) -> None:
    """Deal out the text, in whole lines, by the sizes of its stretches."""
    with open(joined, "rb") as text, ExitStack() as stack:
        files = {s: stack.enter_context(atomic_write(path, "wb")) for s, path in splits.items()}
        end = 0
        for split, size in spans:
            end += size
            while text.tell() < end and (line := text.readline()):
                files[split].write(line)
        if empty := [split for split, file in files.items() if not file.tell()]:
            raise BadInput(
                f"Nothing of the text is left for {' and '.join(empty)}, because its lines are too "
                "long; break them or give more text."
            )
