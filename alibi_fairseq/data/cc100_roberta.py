"""CC100+RoBERTa, or any other amount of text: shuffled by documents, sharded, sub-words.

An item of the data is a document: its lines, each with ``</s>``, and one more ``</s>`` at its end,
as RoBERTa's recipe makes of the empty line between documents. See data-prep/cc100-roberta/README.md.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ..errors import BadInput
from ..files import sha256_file
from ..results.manifest import other_name
from .documents import KEYS, documents_between, portions, runs_in, write_runs
from .pipeline import BYTES_PER_TOKEN, Corpus, Part, option, part_bytes, positive
from .sources import fingerprint, text_bytes, text_files
from .tokenisers import ByteLevelBpe, Tokeniser

CORPUS = "cc100-roberta"
PAPER_BYTES = 461e9
SHARD = 4e9  # bytes of text in a shard

_SAMPLE = 200_000_000  # bytes of text that a tokeniser is trained on at most
_LEAST_EXCERPT = 8_000_000  # bytes: several documents of the greatest length


@dataclass
class Cc100Roberta(Corpus):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "any amount of text, shuffled and sharded, sub-words"
    paper_bytes: ClassVar[float] = PAPER_BYTES
    disk: ClassVar[float] = 1.6  # the text once, and two bytes per token
    item: ClassVar[str] = "documents"

    sources: Sequence[str | os.PathLike] = option(
        "text files, .gz/.xz/.bz2 shards, archives or folders of them; documents are separated "
        "by empty lines"
    )
    vocab_size: int = option(
        "dictionary entries of the sentencepiece BPE, trained on a sample of the text",
        50_000,
        type=positive,
    )
    encoder_json: str | os.PathLike | None = option(
        "GPT-2's encoder.json, instead of training", None, metavar="FILE"
    )
    vocab_bpe: str | os.PathLike | None = option(
        "GPT-2's vocab.bpe, with the above", None, metavar="FILE"
    )
    valid_tokens: int = option(
        "tokens of the validation set; the default is the paper's", 649_000, type=positive
    )
    shards: int | None = option(
        "number of folders for the training text (default: one per 4 GB of text)",
        None,
        type=positive,
    )
    seed: int = option("random seed of the shuffling", 1)

    @functools.cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources)

    def settings(self) -> dict:
        if len(self._published) == 1:
            raise BadInput("--encoder-json and --vocab-bpe belong together; give both or neither.")
        if self._published:
            ByteLevelBpe(*self._published)  # fails before hours of work
        return {
            "sources": fingerprint(self.files),
            "seed": self.seed,
            "tokenizer": "byte-level-bpe" if self._published else "sentencepiece",
            "vocabulary": sha256_file(self._published[1]) if self._published else self.vocab_size,
            "valid_tokens": self.valid_tokens,
            "shards": self.shards,
            "sample_bytes": None if self._published else _SAMPLE,
        }

    @property
    def _published(self) -> list[str | os.PathLike]:
        return [file for file in (self.encoder_json, self.vocab_bpe) if file is not None]

    def read(self, work: Path, workers: int) -> dict:
        most = self.excerpt and max(_LEAST_EXCERPT, self.excerpt * BYTES_PER_TOKEN)
        replaced = write_runs(
            portions(self.files, most), self.seed, work / "runs", workers, text_bytes(self.files)
        )
        size = text_bytes(runs_in(work / "runs"))
        self._set_aside(size)
        of_that_size = is_of_that_size(size) and not self.excerpt
        return {
            "corpus": CORPUS if of_that_size else other_name(self.sources[0]),
            "identified_by": "size alone" if of_that_size else None,
            "sources": [{"name": file.name, "bytes": file.stat().st_size} for file in self.files],
            "seed": self.seed,
            "replaced_documents": replaced,
        }

    def _set_aside(self, size: int) -> int:
        """The key at which the documents of the validation set must have sufficed."""
        share = min(1.0, self.valid_tokens * BYTES_PER_TOKEN / max(1, size))
        if int(KEYS * share) > KEYS // 2:
            raise BadInput(
                f"The text has {size:,} bytes; a validation set of {self.valid_tokens:,} "
                "tokens would take more than half of it; give more text or fewer --valid-tokens."
            )
        # Of few documents, each is perhaps longer than the validation set.
        return KEYS // 2 if self.excerpt else int(KEYS * share)

    def sample(self, work: Path) -> Iterator[str]:
        """Lines of a random sample of the documents, none of which validation may take."""
        runs = runs_in(work / "runs")
        size = text_bytes(runs)
        share = min(1.0, _SAMPLE / size)
        low = max(self._set_aside(size), KEYS - int(KEYS * share))
        for _, text in documents_between(runs, low, KEYS):
            yield from text.decode().split("\n")[:-1]

    def tokeniser(self, work: Path) -> Tokeniser:
        if self._published:
            return ByteLevelBpe(*self._published)
        return self.trained(work, self.vocab_size)

    def parts(self, work: Path, tokeniser: Tokeniser) -> list[Part]:
        runs = runs_in(work / "runs")
        size = text_bytes(runs)
        end, last_lines = self._validation_end(runs, self._set_aside(size), tokeniser)
        cut = plan(end, size, self.shards)
        train: list[Part] = [
            (f"{shard}/train", functools.partial(items, runs, low, high))
            for shard, low, high in cut
        ]
        # In the first shard, where fairseq looks for it.
        first, *_ = cut[0]
        return [*train, (f"{first}/valid", functools.partial(items, runs, 0, end, last_lines))]

    def _validation_end(
        self, runs: list[Path], set_aside: int, tokeniser: Tokeniser
    ) -> tuple[int, int]:
        """Where the validation set ends: with the line that reaches its number of tokens.

        The rest of that line's document is left out of the training data too.

        Returns:
            The key that follows its last document, and how many lines of that it has.
        """
        tokens, least = 0, self.valid_tokens
        for key, text in documents_between(runs, 0, set_aside):
            tokens += 1
            for number, ids in enumerate(tokeniser.encode(text.decode().split("\n")[:-1]), 1):
                tokens += len(ids) + 1
                if tokens >= least:
                    return key + 1, number
        raise BadInput(
            f"The text set aside for validation gave {tokens:,} tokens instead of {least:,}; "
            "give more text or fewer --valid-tokens."
        )


def items(
    runs: list[Path], low: int, high: int, last_lines: int | None = None
) -> Iterator[list[str]]:
    """The lines of each document with low ≤ key < high, and an empty one.

    Args:
        last_lines: lines of the last document that are kept; None: all.
    """
    found = documents_between(runs, low, high)
    for number, (_, text) in enumerate(found, 1):
        lines = text.decode().split("\n")[:-1]
        yield [*lines[: last_lines if number == len(found) else None], ""]


def plan(low: int, total: int, shards: int | None) -> list[tuple[str, int, int]]:
    """Divide the keys from ``low`` on into shards, and those into parts: (shard, low, high)."""
    shards = shards or max(1, round(total / SHARD))
    each = max(1, math.ceil(total / shards / part_bytes(total)))
    count = shards * each
    digits = max(2, len(str(shards - 1)))
    edges = [low + (KEYS - low) * part // count for part in range(count + 1)]
    return [
        (f"shard{number // each:0{digits}d}", first, last)
        for number, (first, last) in enumerate(zip(edges, edges[1:]))
    ]


def is_of_that_size(text_bytes: float) -> bool:
    """Return whether the text may be the paper's, which is not published; only its size tells."""
    return text_bytes >= 0.9 * PAPER_BYTES
