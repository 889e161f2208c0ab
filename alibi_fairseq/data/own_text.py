"""The user's own text: any files, whole documents held out, words or sentencepiece pieces.

A document is a file, or a member of an archive; white space is normalised to single spaces and empty
lines are dropped, except one at the end of each document. See docs/experiments.md.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
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
from .pipeline import BYTES_PER_TOKEN, SPLITS, Corpus, Text, Workspace, option, positive
from .sources import describe_files, not_utf8, single_spaced, text_bytes, text_files, texts
from .splits import split_documents
from .tokenisers import Tokeniser, Words, train_sentencepiece

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

    def read(self, workspace: Workspace, workers: int) -> Text:
        joined = workspace.work / "all.txt"
        sizes = workspace.step("normalise", lambda: self._normalise(joined))["documents"]
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
            return Words.of(text.splits["train"], work / "dict.txt", self.vocab_size)
        entries = self.vocab_size or min(16_000, max(1_000, self._bytes // 1000))
        if not self.vocab_size:
            print(
                f"a dictionary of {entries:,} entries: one per 1,000 of the {self._bytes:,} bytes of "
                "text, between 1,000 and 16,000; --vocab-size asks for another",
                flush=True,
            )
        return train_sentencepiece(text.sample(), work / "sentencepiece.model", entries)

    def _normalise(self, joined: Path) -> dict:
        """All documents, or the first of them, in one file; the bytes of each in their order."""
        lines = _lines(self.files)
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
        return {"documents": [end - begin for begin, end in zip(ends, ends[1:])]}


def _lines(files: list[Path]) -> Iterator[bytes]:
    """The lines of every document and an empty one behind each."""
    for name, stream in (pair for file in files for pair in texts(file)):
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
