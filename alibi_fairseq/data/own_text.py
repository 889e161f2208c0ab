"""The user's own text: any files, whole documents held out, words or sentencepiece pieces.

A document is a file, or a member of an archive; white space is normalised to single spaces and empty
lines are dropped, except one at the end of each document. See docs/experiments.md.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ..errors import BadInput
from ..files import atomic_write
from ..results.manifest import other_name
from .pipeline import (
    BYTES_PER_TOKEN,
    SPLITS,
    Corpus,
    Text,
    Workspace,
    option,
    positive,
    trained_sentencepiece,
)
from .progress import progress
from .sources import describe_files, not_utf8, single_spaced, size_of, text_files, texts
from .tokenisers import RESERVED, SPECIAL, Tokeniser, Words

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
        return [file for source in self.sources for file in text_files(source, ENDINGS)]

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

    def read(self, workspace: Workspace, workers: int) -> Text:
        joined = workspace.work / "all.txt"
        most = self.excerpt and self.excerpt * BYTES_PER_TOKEN
        found = workspace.step("normalise", lambda: _normalise(self.files, joined, most))
        sizes = found["documents"]
        self._bytes = sum(sizes)
        split = split_documents(sizes, self.held_out, self.seed)
        # Too few documents: the last stretches are held out, so that long contexts remain coherent.
        held = int(self._bytes * self.held_out / 100)
        stretches = zip(SPLITS, (self._bytes - 2 * held, held, held))
        splits = {split: workspace.work / f"{split}.txt" for split in SPLITS}
        spans = list(zip(split, sizes) if split else stretches)
        workspace.step("split", lambda: _write_splits(joined, spans, splits))
        facts = {
            "corpus": other_name(self.sources[0]),
            "identified_by": None,
            "sources": self._described,
            "seed": self.seed,
            "unit": "document" if split else "stretch of text",
        }
        return Text(splits, facts)

    def tokeniser(self, work: Path, text: Text) -> Tokeniser:
        if self.tokenizer == "words":
            dictionary = work / "dict.txt"
            if not dictionary.exists():
                _write_dictionary(text.splits["train"], dictionary, self.vocab_size)
            return Words(dictionary)
        entries = self.vocab_size or min(16_000, max(1_000, self._bytes // 1000))
        if not self.vocab_size:
            print(
                f"a dictionary of {entries:,} entries: one per 1,000 of the {self._bytes:,} bytes of "
                "text, between 1,000 and 16,000; --vocab-size asks for another",
                flush=True,
            )
        return trained_sentencepiece(work, text, entries)


def split_documents(sizes: Sequence[int], held_out: float, seed: int) -> list[str] | None:
    """The split of each document, drawn in an order that depends on the seed.

    A document that would make a held-out split half as large again as requested stays in training.

    Args:
        sizes: bytes of each document.
        held_out: percent of all bytes for each of validation and test.

    Returns:
        None if whole documents cannot be held out: there are too few, or they are too long.
    """
    wanted = sum(sizes) * held_out / 100
    found = ["train"] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda n: hashlib.sha256(f"{seed} {n}".encode()).digest())
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


def _normalise(files: list[Path], joined: Path, most: int | None) -> dict:
    """All documents, or the first of them, in one file; the bytes of each in their order."""
    sizes = []
    with atomic_write(joined, "wb") as out, progress(size_of(files), "normalising") as bar:
        for name, stream in (pair for file in files for pair in texts(file, bar.update)):
            begin = out.tell()
            for line in _lines(name, stream):
                if most and out.tell() >= most:
                    break
                out.write(line)
            if out.tell() > begin:
                out.write(b"\n")
                sizes.append(out.tell() - begin)
            if most and out.tell() >= most:
                break
    if sum(sizes) < _LEAST_BYTES:
        raise BadInput(
            f"{files[0]}{' and the others' if len(files) > 1 else ''}: {sum(sizes):,} bytes of text "
            f"are too few to train and evaluate a model; at least {_LEAST_BYTES:,} are needed."
        )
    return {"documents": sizes}


def _lines(name: str, stream) -> Iterator[bytes]:
    try:
        for line in io.TextIOWrapper(stream, encoding="utf-8-sig"):
            if line := single_spaced(line):
                yield line.encode() + b"\n"
    except UnicodeDecodeError as error:
        raise not_utf8(name, error) from error


def _write_splits(joined: Path, spans: list[tuple[str, int]], splits: dict[str, Path]) -> dict:
    """Deal out the text, in whole lines, by the sizes of its stretches."""
    with open(joined, "rb") as text, ExitStack() as stack:
        files = {s: stack.enter_context(atomic_write(path, "wb")) for s, path in splits.items()}
        end = 0
        for split, size in spans:
            end += size
            while text.tell() < end and (line := text.readline()):
                files[split].write(line)
        written = {split: file.tell() for split, file in files.items()}
    if empty := [split for split, size in written.items() if not size]:
        raise BadInput(
            f"Nothing of the text is left for {' and '.join(empty)}, because its lines are too long; "
            "break them or give more text."
        )
    return written


def _write_dictionary(text: Path, dictionary: Path, entries: int | None) -> None:
    """``dict.txt`` of the words of a text, the most frequent first."""
    with open(text, encoding="utf-8", newline="\n") as stream:
        words = Counter(word for line in stream for word in line.split() if word not in RESERVED)
    with atomic_write(dictionary) as out:
        for word, count in words.most_common(entries and max(0, entries - SPECIAL)):
            out.write(f"{word} {count}\n")
