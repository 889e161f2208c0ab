"""The user's own text: any files, whole documents held out, words or sentencepiece pieces.

A document is a file, or a member of an archive; white space is normalised to single spaces and empty
lines are dropped, except one at the end of each document. See docs/experiments.md.
"""

from __future__ import annotations

import io
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ..errors import UserInputError
from ..files import atomic_write
from ..results.manifest import other_name
from .pipeline import BYTES_PER_TOKEN, SPLITS, CorpusBuilder, option, percentage, positive
from .sources import (
    describe_files,
    naming,
    shuffle_key,
    single_spaced,
    text_bytes,
    text_files,
    texts,
)
from .tokenization import RESERVED, SPECIAL, Tokenizer, Words
from .truncation import take_until
from .worker_pool import progress

#: Files of a folder that are read; files named one by one may have any name.
ENDINGS = (".txt", ".md", ".rst")


@dataclass
class CustomTextBuilder(CorpusBuilder):
    name: ClassVar[str] = "text"
    summary: ClassVar[str] = (
        "your own text, in any files, with whole documents held out, or the last part of the text "
        "where documents are too few or too long"
    )

    sources: Sequence[str | os.PathLike] = option(
        "text files of any name, compressed ones (.gz, .xz, .bz2), archives with *.txt, "
        "or folders with *.txt, *.md and *.rst"
    )
    tokenizer: str = option(
        "a BPE trained on the training split, or words separated by white space",
        "sentencepiece",
        choices=("sentencepiece", "words"),
    )
    vocab_size: int | None = option(
        "dictionary entries (default: all words; with sentencepiece one per 1,000 bytes of "
        "text, between 1,000 and 16,000)",
        None,
        type=positive,
    )
    held_out: float = option(
        "percentage of the text held out for validation, and again for test",
        5.0,
        type=percentage,
        metavar="PERCENT",
    )
    seed: int = option("random seed of the split", 1)

    @cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources, ENDINGS)

    def settings(self) -> dict:
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
        if split is None:
            print(
                f"No whole documents are held out: {len(sizes):,} documents are too few or too long for "
                f"{self.held_out:g}% of the text each. The last {2 * self.held_out:g}% of the text "
                "becomes valid and test, so a document may be in several splits.",
                flush=True,
            )
        stretches = zip(SPLITS, (sum(sizes) - 2 * held, held, held))
        _deal(joined, zip(split, sizes) if split else stretches, self.texts(work))
        return {
            "corpus": other_name(self.sources[0]),
            "identified_by": None,
            "sources": self._described,
            "seed": self.seed,
            "unit": "document" if split else "stretch of text",
        }

    def tokeniser(self, work: Path) -> Tokenizer:
        if self.tokenizer == "words":
            return self._words(work / "train.txt", work / "dict.txt")
        size = text_bytes(self.texts(work).values())
        entries = self.vocab_size or min(16_000, max(1_000, size // 1000))
        if not self.vocab_size:
            reason = f"for {size:,} bytes of text; --vocab-size asks for another number"
            print(f"a dictionary of {entries:,} entries {reason}", flush=True)
        return self.trained(work, entries)

    def _words(self, train: Path, dictionary: Path) -> Words:
        """The words of the training split, the most frequent first."""
        with open(train, encoding="utf-8", newline="\n") as lines:
            counts = Counter(word for line in lines for word in line.split())
        words = [f"{word} {n}\n" for word, n in counts.most_common() if word not in RESERVED]
        with atomic_write(dictionary) as out:
            out.writelines(words[: self.vocab_size and max(0, self.vocab_size - SPECIAL)])
        return Words(dictionary)

    def _join(self, joined: Path) -> list[int]:
        """Write all documents, or the first of them, to one file; returns the bytes of each."""
        lines: Iterable[bytes] = itertools.chain.from_iterable(map(_lines, self.files))
        if self.excerpt:
            lines = take_until(lines, self.excerpt * BYTES_PER_TOKEN)
        sizes = [0]
        with open(joined, "wb") as out, progress(text_bytes(self.files), "normalising") as bar:
            for line in lines:
                out.write(line)
                bar.update(len(line))
                sizes[-1] += len(line)
                if line == b"\n":
                    sizes.append(0)
            if sizes[-1]:  # an excerpt ends within a document
                sizes[-1] += out.write(b"\n")
        return [size for size in sizes if size]


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of every document in a file, and an empty one behind each."""
    for name, stream in texts(file):
        empty = True
        with naming(name):
            for line in io.TextIOWrapper(stream, encoding="utf-8-sig"):
                if line := single_spaced(line):
                    yield line.encode() + b"\n"
                    empty = False
        if not empty:
            yield b"\n"


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


def _deal(joined: Path, spans: Iterable[tuple[str, int]], splits: dict[str, Path]) -> None:
    """Deal out the text, in whole lines, by the sizes of its stretches."""
    with open(joined, "rb") as text, ExitStack() as stack:
        files = {s: stack.enter_context(open(path, "wb")) for s, path in splits.items()}
        end = 0
        for split, size in spans:
            end += size
            while text.tell() < end and (line := text.readline()):
                files[split].write(line)
        if empty := [split for split, file in files.items() if not file.tell()]:
            raise UserInputError(
                f"Nothing of the text is left for {' and '.join(empty)}: give more text, or break "
                "its lines."
            )
