"""Interface of the corpora that ``alibi-fairseq prepare`` can prepare."""

from __future__ import annotations

import functools
import math
from collections.abc import Container, Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import UserInputError
from ..options import option, positive_integer
from .binarization import Part, text_parts
from .sources import text_bytes
from .tokenization import Tokenizer, train_sentencepiece

SPLITS = ("train", "valid", "test")
#: Bytes of text per token, more than tokenizers have on average in scripts of one or two bytes per
#: letter. Scripts of three bytes per letter, such as Thai, can have more.
BYTES_PER_TOKEN = 8
#: Largest number of bytes of text to train a tokenizer on, all of which sentencepiece keeps in
#: memory. The paper shows no number. Another one would change the vocabulary of large corpora.
_SAMPLE_BYTES = 256_000_000


@dataclass
class CorpusBuilder:
    """Corpus to prepare, with methods to read, split, tokenize, and check it.

    The fields are the options of ``alibi-fairseq prepare``. :func:`.pipeline.prepare_corpus` calls
    the methods in this order: :meth:`settings`, :meth:`write_normalized_text`,
    :meth:`build_tokenizer`, :meth:`parts`. An interrupted preparation calls them again, but
    :meth:`write_normalized_text` only if it had not finished.

    Attributes:
        name: name on the command line.
        summary: description for ``--help``, a noun phrase.
        download_bytes: size of the text that is downloaded if no files are given.
        disk: peak disk use in bytes per byte of text.
        item: manifest key for the number of items, unless an item is a line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    download_bytes: ClassVar[float] = 0
    disk: ClassVar[float] = 3.5  # normalized text twice, the binary data twice for a while
    item: ClassVar[str] = ""

    _: KW_ONLY
    excerpt: int | None = option(
        "approximate number of tokens to prepare, from the beginning of the text; an excerpt never "
        "gets the name of a corpus of the paper (default: all)",
        None,
        type=positive_integer,
        metavar="TOKENS",
    )

    def settings(self) -> dict:
        """Return the JSON values that determine the output.

        Raises:
            UserInputError: the options cannot be used.
        """
        raise NotImplementedError

    @functools.cached_property
    def files(self) -> list[Path]:
        """Input files; empty before a download."""
        raise NotImplementedError

    @property
    def disk_needed(self) -> float:
        """Estimate of the peak disk use of the preparation, in bytes."""
        size = text_bytes(self.files) or self.download_bytes
        if self.excerpt:
            size = min(size, self.excerpt * BYTES_PER_TOKEN)
        return self.disk * size

    def write_normalized_text(self, work: Path, workers: int) -> dict:
        """Write the normalized text of each split to a folder, and return its manifest entries.

        Further files of the data folder go into its subfolder ``data-bin``.

        Args:
            work: the folder.
            workers: number of processes.

        Returns:
            Entries of the manifest. ``more`` maps splits to more counts.

        Raises:
            UserInputError: the text cannot be used, or is not the expected one.
        """
        raise NotImplementedError

    def split_files(self, work: Path) -> dict[str, Path]:
        """Return the file with the lines of each split."""
        return {split: work / f"{split}.txt" for split in SPLITS}

    def sample(self, work: Path) -> Iterator[str]:
        """Yield lines spread evenly over the training split, to train a tokenizer on."""
        path = self.split_files(work)["train"]
        interval = math.ceil(path.stat().st_size / _SAMPLE_BYTES)
        with open(path, encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream):
                if number % interval == 0:
                    yield line.rstrip("\n")

    def build_tokenizer(self, work: Path) -> Tokenizer:
        """Return the tokenizer. A trained one is saved in ``work`` and used again."""
        raise NotImplementedError

    def train_tokenizer(self, work: Path, entries: int) -> Tokenizer:
        """Train a sentencepiece BPE on :meth:`sample`.

        Args:
            work: folder of the text and the model.
            entries: number of dictionary entries.
        """
        return train_sentencepiece(self.sample(work), work / "sentencepiece.model", entries)

    def parts(self, work: Path, tokenizer: Tokenizer) -> list[Part]:
        """Return the parts of the binary data, in the order of its files. An item is a line."""
        parts = []
        for split, path in self.split_files(work).items():
            parts += text_parts(path, split)
        return parts


def check_no_split_is_empty(used: Container[str]) -> None:
    """Raise UserInputError if one of the splits is not used, because there is too little text."""
    empty = [split for split in SPLITS if split not in used]
    if empty:
        raise UserInputError(
            f"Nothing of the text is left for {' and '.join(empty)}. Provide more text, or break "
            "its lines."
        )
