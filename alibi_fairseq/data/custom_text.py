"""Text of the user, tokenized into words or sentencepiece pieces, with whole documents held out.

A document is a file or a member of an archive. Whitespace is normalized to single spaces, and
empty lines are dropped, except one at the end of each document. See docs/preparing-text.md.
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

from ..files import atomic_write
from ..options import option, percentage, positive_integer
from ..progress_bar import make_progress_bar
from ..results.manifest import other_name
from .corpus_builder import BYTES_PER_TOKEN, CorpusBuilder, check_no_split_is_empty
from .iterables import take_until
from .sources import (
    describe_files,
    errors_naming,
    open_texts,
    shuffle_key,
    single_spaced,
    text_bytes,
    text_files,
    text_name,
)
from .tokenization import RESERVED, SPECIAL, Tokenizer, Words

#: Endings of the files that are read from folders. Files given by name may have any ending.
ENDINGS = (".txt", ".md", ".rst")


@dataclass
class CustomTextBuilder(CorpusBuilder):
    """Text of the user, with whole documents held out where possible."""

    name: ClassVar[str] = "text"
    summary: ClassVar[str] = (
        "your own text, with whole documents held out, or the end of the text if its documents are "
        "too few or too long"
    )

    sources: Sequence[str | os.PathLike] = option(
        "text files of any name, plain or compressed (.gz, .xz, .bz2), archives of *.txt, or "
        "folders of *.txt, *.md, and *.rst",
        metavar="TEXT",
    )
    tokenizer: str = option(
        "tokenizer: a BPE trained on the training split, or words separated by whitespace",
        "sentencepiece",
        choices=("sentencepiece", "words"),
    )
    vocab_size: int | None = option(
        "number of dictionary entries (default: all words; with sentencepiece one per 1,000 bytes "
        "of text, between 1,000 and 16,000)",
        None,
        type=positive_integer,
    )
    held_out: float = option(
        "percentage of the text held out for validation; the same percentage is held out for "
        "testing",
        5.0,
        type=percentage,
        metavar="PERCENT",
    )
    seed: int = option("random seed of the split", 1)

    @cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources, ENDINGS)

    @cached_property
    def _described_files(self) -> list[dict]:
        """Manifest's entries for the files, with a hash of each."""
        return describe_files(self.files)

    def settings(self) -> dict:
        sources = [source["sha256"] for source in self._described_files]
        return {"sources": sources, **self.settings_without_sources()}

    def settings_without_sources(self) -> dict:
        """Return the settings that are known without the text."""
        return {
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocab_size,
            "held_out": self.held_out,
            "seed": self.seed,
        }

    def write_normalized_text(self, work: Path, workers: int) -> dict:
        joined = work / "all.txt"
        sizes = self._join_documents(joined)
        split_of_document = assign_splits(sizes, self.held_out, self.seed)
        if split_of_document is not None:
            spans = list(zip(split_of_document, sizes))
        else:
            spans = self._hold_out_end(sizes)
        _write_splits(joined, spans, self.split_files(work))
        return {
            "corpus": other_name(self.sources[0]),
            "identified_by": None,
            "sources": self._described_files,
            "seed": self.seed,
            "unit": "document" if split_of_document else "stretch of text",
        }

    def _hold_out_end(self, sizes: Sequence[int]) -> list[tuple[str, int]]:
        """Return the split and bytes of three consecutive parts of the text, and print the reason.

        The end of the text is held out, so that long contexts remain coherent.

        Args:
            sizes: bytes of each document.
        """
        print(
            f"No whole documents are held out: {len(sizes):,} documents are too few or too "
            f"long for {self.held_out:g}% of the text each. The last {2 * self.held_out:g}% of "
            "the text becomes valid and test, so a document may be in several splits.",
            flush=True,
        )
        total_bytes = sum(sizes)
        split_bytes = int(total_bytes * self.held_out / 100)
        train_bytes = total_bytes - 2 * split_bytes
        return [("train", train_bytes), ("valid", split_bytes), ("test", split_bytes)]

    def build_tokenizer(self, work: Path) -> Tokenizer:
        if self.tokenizer == "words":
            self._write_word_dictionary(work / "train.txt", work / "dict.txt")
            return Words(work / "dict.txt")
        if self.vocab_size:
            return self.train_tokenizer(work, self.vocab_size)
        size = text_bytes(self.split_files(work).values())
        entries = min(16_000, max(1_000, size // 1000))
        print(
            f"The dictionary has {entries:,} entries, for {size:,} bytes of text. Pass "
            "--vocab-size to set another size.",
            flush=True,
        )
        return self.train_tokenizer(work, entries)

    def _write_word_dictionary(self, train: Path, dictionary: Path) -> None:
        """Write the words of the training split, the most frequent first."""
        counts: Counter[str] = Counter()
        with open(train, encoding="utf-8", newline="\n") as lines:
            for line in lines:
                counts.update(line.split())
        entries = [
            f"{word} {count}\n" for word, count in counts.most_common() if word not in RESERVED
        ]
        if self.vocab_size:
            entries = entries[: max(0, self.vocab_size - SPECIAL)]
        with atomic_write(dictionary) as out:
            out.writelines(entries)

    def _join_documents(self, joined: Path) -> list[int]:
        """Write the documents of the text or its excerpt to one file; return the bytes of each."""
        lines: Iterable[bytes] = itertools.chain.from_iterable(map(_document_lines, self.files))
        if self.excerpt:
            lines = take_until(lines, self.excerpt * BYTES_PER_TOKEN)
        sizes = []
        size = 0
        with (
            open(joined, "wb") as out,
            make_progress_bar(text_bytes(self.files), "normalizing") as bar,
        ):
            for line in lines:
                out.write(line)
                bar.update(len(line))
                size += len(line)
                if line == b"\n":
                    sizes.append(size)
                    size = 0
            if size:  # an excerpt ends within a document
                out.write(b"\n")
                sizes.append(size + 1)
        return sizes


def _document_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of each document in a file, and an empty line at its end."""
    for name, stream in open_texts(file, unread=ENDINGS):
        is_empty = True
        with errors_naming(text_name(file, name)):
            for line in io.TextIOWrapper(stream, encoding="utf-8-sig"):
                normalized = single_spaced(line)
                if normalized:
                    yield normalized.encode() + b"\n"
                    is_empty = False
        if not is_empty:
            yield b"\n"


def assign_splits(sizes: Sequence[int], held_out: float, seed: int) -> list[str] | None:
    """Assign each document to a split, in an order that depends on the seed.

    A document stays in training if it would make a held-out split more than 1.5 times as large as
    requested.

    Args:
        sizes: bytes of each document.
        held_out: percentage of all bytes for validation, and again for test.
        seed: random seed.

    Returns:
        The split of each document. None if the documents are too few or too long to be held out.
    """
    wanted = sum(sizes) * held_out / 100
    splits = ["train"] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda number: shuffle_key(seed, number))
    for split in ("valid", "test"):
        held = 0
        for number in order:
            if held >= wanted:
                break
            if splits[number] == "train" and held + sizes[number] <= 1.5 * wanted:
                splits[number] = split
                held += sizes[number]
        if held < wanted / 2:
            return None
    return splits


def _write_splits(joined: Path, spans: Iterable[tuple[str, int]], paths: dict[str, Path]) -> None:
    """Divide a text among the files of the splits, in whole lines.

    Args:
        joined: the text.
        spans: split and bytes of consecutive parts of the text.
        paths: file of each split.

    Raises:
        UserInputError: a split gets no text, or only the empty line that ends a document.
    """
    with open(joined, "rb") as text, ExitStack() as stack:
        files = {split: stack.enter_context(open(path, "wb")) for split, path in paths.items()}
        with_text = set()
        end = 0
        for split, size in spans:
            end += size
            while text.tell() < end:
                line = text.readline()
                if not line:
                    break
                files[split].write(line)
                if line != b"\n":
                    with_text.add(split)
        check_no_split_is_empty(with_text)
