"""CC100+RoBERTa, or any other amount of text: shuffled by documents, sharded, and in subwords.

An item of the data is a document: its lines, each with ``</s>``, and one more ``</s>`` at its end.
Data made by RoBERTa's recipe also has it, from the empty line between documents.

Documents are shuffled by random keys (see ``shuffling``). Validation takes those with the smallest
keys, and training all others. The tokenizer is trained on those with the largest keys. See
data-prep/cc100-roberta/README.md.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import UserInputError
from ..files import sha256_file
from ..options import option, positive_integer
from ..results.manifest import other_name
from .binarization import Part, part_bytes
from .corpus_builder import BYTES_PER_TOKEN, CorpusBuilder
from .shuffling import KEYS, chunks_in, documents_between, write_sorted_chunks
from .sources import file_list_digest, text_bytes, text_files
from .tokenization import ByteLevelBpe, Tokenizer, train_sentencepiece

CORPUS = "cc100-roberta"
#: Bytes of the paper's text.
PAPER_BYTES = 461e9
#: Tokens of the paper's validation split.
PAPER_VALID_TOKENS = 649_000
#: Bytes of text in a shard.
SHARD_BYTES = 4e9
#: Folder of the sorted chunks in OUT/work.
_CHUNKS = "runs"
#: Largest number of bytes of documents to train a tokenizer on, which then takes 2 GB of memory. It
#: is a setting of prepared corpora: with another value, they would have to be prepared again.
_SAMPLE_BYTES = 200_000_000
#: Smallest number of bytes of an excerpt: several documents of the greatest length.
_MIN_EXCERPT_BYTES = 8_000_000
#: Largest key below which all validation documents are: half of the text.
_MAX_VALIDATION_LIMIT = KEYS // 2


@dataclass
class Cc100Roberta(CorpusBuilder):
    """CC100+RoBERTa, or any other amount of text."""

    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "any amount of text in subwords, shuffled and sharded"
    disk: ClassVar[float] = 1.6  # the text once, and two bytes per token
    item: ClassVar[str] = "documents"

    sources: Sequence[str | os.PathLike] = option(
        "text files, plain or compressed (.gz, .xz, .bz2), or archives or folders of them; an "
        "empty line ends a document, except in OpenWebText's archives",
        metavar="TEXT",
    )
    vocab_size: int = option(
        "number of dictionary entries of the sentencepiece BPE, trained on a sample of the text",
        50_000,
        type=positive_integer,
    )
    encoder_json: str | os.PathLike | None = option(
        "GPT-2's encoder.json, to tokenize with GPT-2's BPE instead of sentencepiece",
        None,
        metavar="FILE",
    )
    vocab_bpe: str | os.PathLike | None = option(
        "GPT-2's vocab.bpe, which --encoder-json requires", None, metavar="FILE"
    )
    valid_tokens: int | None = option(
        "number of tokens of the validation split (default: 649000 as in the paper, and at most a "
        "tenth of an excerpt)",
        None,
        type=positive_integer,
    )
    shards: int | None = option(
        "number of folders for the training text (default: one per 4 GB of text)",
        None,
        type=positive_integer,
    )
    seed: int = option("random seed of the shuffling", 1)

    @functools.cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources)

    def settings(self) -> dict:
        if len(self._bpe_files) == 1:
            raise UserInputError(
                "--encoder-json and --vocab-bpe require each other. Pass both or neither."
            )
        settings = {
            "sources": file_list_digest(self.files),
            "seed": self.seed,
            "tokenizer": "sentencepiece",
            "vocabulary": self.vocab_size,
            "valid_tokens": self._valid_tokens,
            "shards": self.shards,
            "sample_bytes": _SAMPLE_BYTES,
        }
        if self._bpe_files:
            ByteLevelBpe(*self._bpe_files)  # raises an error now and not after hours of work
            settings["tokenizer"] = "byte-level-bpe"
            settings["vocabulary"] = sha256_file(self._bpe_files[1])
            settings["encoder_json"] = sha256_file(self._bpe_files[0])
            settings["sample_bytes"] = None
        return settings

    @property
    def _bpe_files(self) -> list[str | os.PathLike]:
        """Given files of GPT-2's BPE. :meth:`settings` rejects a single one."""
        return [file for file in (self.encoder_json, self.vocab_bpe) if file is not None]

    @property
    def _valid_tokens(self) -> int:
        """Number of tokens of the validation split."""
        if self.valid_tokens is not None:
            return self.valid_tokens
        if self.excerpt:
            return min(PAPER_VALID_TOKENS, math.ceil(self.excerpt / 10))
        return PAPER_VALID_TOKENS

    def write_normalized_text(self, work: Path, workers: int) -> dict:
        most = None
        if self.excerpt:
            most = max(_MIN_EXCERPT_BYTES, self.excerpt * BYTES_PER_TOKEN)
        replaced = write_sorted_chunks(self.files, self.seed, work / _CHUNKS, workers, most)
        size = text_bytes(chunks_in(work / _CHUNKS))
        self._validation_limit(size)  # raises an error if there is too little text
        may_be_paper = has_paper_size(size) and not self.excerpt
        return {
            "corpus": CORPUS if may_be_paper else other_name(self.sources[0]),
            "identified_by": "size alone" if may_be_paper else None,
            "sources": [{"name": file.name, "bytes": file.stat().st_size} for file in self.files],
            "seed": self.seed,
            "replaced_documents": replaced,
        }

    def _validation_limit(self, size: int) -> int:
        """Return the key below which all validation documents usually are.

        They have about ``BYTES_PER_TOKEN`` bytes per validation token, which most scripts do not
        need. :meth:`_validation_end` finds the exact end.

        Args:
            size: bytes of the text.

        Raises:
            UserInputError: validation would take more than half of the text.
        """
        fraction = min(1.0, self._valid_tokens * BYTES_PER_TOKEN / max(1, size))
        limit = int(KEYS * fraction)
        if limit > _MAX_VALIDATION_LIMIT:
            raise self._too_little_text()
        return limit

    def build_tokenizer(self, work: Path) -> Tokenizer:
        if self._bpe_files:
            return ByteLevelBpe(*self._bpe_files)
        chunks = chunks_in(work / _CHUNKS)
        size = text_bytes(chunks)
        fraction = min(1.0, _SAMPLE_BYTES / size)
        limit = self._validation_limit(size)
        # A single document of an excerpt may be longer than the validation set.
        smallest_key = _MAX_VALIDATION_LIMIT if self.excerpt else limit
        folder = work
        while True:
            # Keys are random, so the documents with the largest keys are a random sample.
            low = max(smallest_key, KEYS - int(KEYS * fraction))
            model = folder / "sentencepiece.model"
            tokenizer = train_sentencepiece(_lines_from(chunks, low), model, self.vocab_size)
            end, _ = self._validation_end(chunks, limit, tokenizer)
            if end <= low:
                return tokenizer
            # The tokenizer was trained on validation documents. Another one is trained without
            # them, in another folder, so that a resumed preparation finds the models of both.
            smallest_key = min(2 * smallest_key, _MAX_VALIDATION_LIMIT)
            folder = folder / "larger-validation"
            folder.mkdir(exist_ok=True)

    def parts(self, work: Path, tokenizer: Tokenizer) -> list[Part]:
        chunks = chunks_in(work / _CHUNKS)
        size = text_bytes(chunks)
        limit = self._validation_limit(size)
        end, last_lines = self._validation_end(chunks, limit, tokenizer)
        ranges = shard_ranges(end, size, self.shards)
        parts = []
        for shard, low, high in ranges:
            parts.append(Part(f"{shard}/train", functools.partial(items, chunks, low, high)))
        # fairseq looks for the validation set in the first shard.
        first_shard, _, _ = ranges[0]
        validation = functools.partial(items, chunks, 0, end, last_lines)
        parts.append(Part(f"{first_shard}/valid", validation))
        return parts

    def _validation_end(
        self, chunks: list[Path], limit: int, tokenizer: Tokenizer
    ) -> tuple[int, int]:
        """Find the end of the validation set: the line that reaches its number of tokens.

        The rest of that line's document is not in the training data either. The limit is doubled
        until the documents below it have enough tokens.

        Args:
            chunks: the sorted chunks.
            limit: see :meth:`_validation_limit`.
            tokenizer: the tokenizer.

        Returns:
            The key that follows its last document, and the number of lines of that document in it.

        Raises:
            UserInputError: half of the text has fewer tokens.
        """
        tokens = 0
        for key, text in documents_between(chunks, 0, limit):
            tokens += 1  # </s> at the end of the document, which it also has if it is cut
            encoded_lines = tokenizer.encode(split_lines(text))
            for number, ids in enumerate(encoded_lines, 1):
                tokens += len(ids) + 1
                if tokens >= self._valid_tokens:
                    return key + 1, number
        if limit < _MAX_VALIDATION_LIMIT:
            larger_limit = min(2 * limit, _MAX_VALIDATION_LIMIT)
            return self._validation_end(chunks, larger_limit, tokenizer)
        raise self._too_little_text()

    def _too_little_text(self) -> UserInputError:
        """Return the error for a validation set that takes more than half of the text."""
        return UserInputError(
            f"A validation set of {self._valid_tokens:,} tokens would take more than half of the "
            "text. Provide more text, or reduce --valid-tokens."
        )


def _lines_from(chunks: list[Path], low: int) -> Iterator[str]:
    """Yield the lines of all documents with low ≤ key."""
    for _, text in documents_between(chunks, low, KEYS):
        yield from split_lines(text)


def split_lines(document: bytes) -> list[str]:
    """Return the lines of a document."""
    # Not splitlines, which also splits at other characters, such as U+2028.
    *lines, _ = document.decode().split("\n")
    return lines


def items(
    chunks: list[Path], low: int, high: int, last_lines: int | None = None
) -> Iterator[list[str]]:
    """Yield each document with low ≤ key < high as an item: its lines and an empty one.

    Args:
        chunks: the sorted chunks.
        low: smallest key.
        high: key that follows the largest one.
        last_lines: number of lines of the last document to keep. None: all.
    """
    documents = documents_between(chunks, low, high)
    for number, (_, text) in enumerate(documents, 1):
        lines = split_lines(text)
        if number == len(documents):
            lines = lines[:last_lines]
        yield [*lines, ""]


def shard_ranges(low: int, total: int, shards: int | None) -> list[tuple[str, int, int]]:
    """Divide the keys from ``low`` on among shards and their parts.

    Args:
        low: smallest key.
        total: bytes of the text.
        shards: number of shards. None: one per 4 GB of text.

    Returns:
        For each part the name of its shard, its smallest key, and the key that follows its largest.
    """
    if shards is None:
        shards = max(1, round(total / SHARD_BYTES))
    parts_per_shard = max(1, math.ceil(total / shards / part_bytes(total)))
    num_parts = shards * parts_per_shard
    edges = [low + (KEYS - low) * part // num_parts for part in range(num_parts + 1)]
    digits = max(2, len(str(shards - 1)))
    ranges = []
    for part in range(num_parts):
        shard = f"shard{part // parts_per_shard:0{digits}d}"
        ranges.append((shard, edges[part], edges[part + 1]))
    return ranges


def has_paper_size(size: float) -> bool:
    """Return True if a text of ``size`` bytes may be the paper's.

    The paper's text is not published, so only its size is known.
    """
    return size >= 0.9 * PAPER_BYTES
