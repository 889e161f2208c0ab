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
from .binary import COUNTS, Part, part_bytes
from .documents import KEYS, documents_between, portions, write_runs
from .pipeline import BYTES_PER_TOKEN, Corpus, Text, Workspace, option, positive
from .sources import describe_files, fingerprint, text_bytes, text_files
from .tokenisers import ByteLevelBpe, Tokeniser, train_sentencepiece

CORPUS = "cc100-roberta"
PAPER_BYTES = 461e9
SHARD = 4e9  # bytes of text in a shard

# Memory in GB (10^9 bytes): of this process with its libraries, and of each worker with its run or
# its part of a shard.
_OWN_MEMORY, _WORKER_MEMORY = 0.8, 0.35
_SAMPLE_PER_GB = 50_000_000  # bytes of text a tokeniser is trained on, per GB of memory
_LEAST_EXCERPT = 8_000_000  # bytes: several documents of the greatest length


@dataclass
class Cc100Roberta(Corpus):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "any amount of text, shuffled and sharded, sub-words"
    paper_bytes: ClassVar[float] = PAPER_BYTES
    disk: ClassVar[float] = 1.6  # the text once, and two bytes per token

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
    memory: float = option("memory of all processes together", 4.0, metavar="GB")
    seed: int = option("random seed of the shuffling", 1)

    @functools.cached_property
    def files(self) -> list[Path]:
        return text_files(self.sources)

    @functools.cached_property
    def published(self) -> ByteLevelBpe | None:
        """GPT-2's tokeniser, if its files were given."""
        if self.encoder_json is None or self.vocab_bpe is None:
            return None
        return ByteLevelBpe(self.encoder_json, self.vocab_bpe)

    def settings(self) -> dict:
        if (self.encoder_json is None) != (self.vocab_bpe is None):
            raise BadInput("--encoder-json and --vocab-bpe belong together; give both or neither.")
        if self.memory < (least := _OWN_MEMORY + _WORKER_MEMORY):
            raise BadInput(
                f"--memory {self.memory} is too little: one process needs {least:.2f} GB."
            )
        published = self.published and sha256_file(self.published.files[1])
        return {
            "sources": fingerprint(self.files),
            "seed": self.seed,
            "tokenizer": "byte-level-bpe" if published else "sentencepiece",
            "vocabulary": published or self.vocab_size,
            "valid_tokens": self.valid_tokens,
            "shards": self.shards,
            "sample_bytes": None if published else round(self.memory * _SAMPLE_PER_GB),
        }

    def processes(self, workers: int) -> int:
        return min(workers, most_workers(self.memory))

    def read(self, workspace: Workspace, workers: int) -> ShuffledText:
        most = self.excerpt and max(_LEAST_EXCERPT, self.excerpt * BYTES_PER_TOKEN)
        found = portions(self.files, most)
        size = text_bytes(self.files)
        runs, read = write_runs(found, self.seed, workspace.work / "runs", workers, size)
        total = read["bytes"]
        set_aside = int(KEYS * min(1.0, self.valid_tokens * BYTES_PER_TOKEN / max(1, total)))
        if set_aside > KEYS // 2:
            raise BadInput(
                f"The text has {total:,} bytes; a validation set of {self.valid_tokens:,} "
                "tokens would take more than half of it; give more text or fewer --valid-tokens."
            )
        if self.excerpt:
            set_aside = KEYS // 2  # of few documents, each perhaps longer than the validation set
        of_that_size = is_of_that_size(total) and not self.excerpt
        facts = {
            "corpus": CORPUS if of_that_size else other_name(self.sources[0]),
            "identified_by": "size alone" if of_that_size else None,
            "sources": describe_files(self.files, hashed=False),
            "seed": self.seed,
        }
        return ShuffledText(
            {}, facts, corpus=self, runs=runs, read=read, set_aside=set_aside, workers=workers
        )

    def tokeniser(self, work: Path, text: ShuffledText) -> Tokeniser:
        if self.published:
            return self.published
        return train_sentencepiece(text.sample(), work / "sentencepiece.model", self.vocab_size)


@dataclass(kw_only=True)
class ShuffledText(Text):
    """Documents in the order of their keys: the validation set first, then the shards.

    Attributes:
        read: the record of :func:`write_runs`.
        set_aside: the key at which the documents of the validation set must have sufficed.
    """

    corpus: Cc100Roberta
    runs: list[Path]
    read: dict
    set_aside: int
    workers: int

    def sample(self, steps: int = 16) -> Iterator[str]:
        """Lines of a random sample of the documents, none of which validation may take."""
        wanted = round(self.corpus.memory * _SAMPLE_PER_GB)
        low = max(self.set_aside, KEYS - int(KEYS * min(1.0, wanted / self.read["bytes"])))
        edges = [low + (KEYS - low) * step // steps for step in range(steps + 1)]
        for first, last in zip(edges, edges[1:]):
            for _, text in documents_between(self.runs, first, last):
                yield from text.decode().split("\n")[:-1]

    def parts(self, workspace: Workspace, tokeniser: Tokeniser) -> list[Part]:
        end = workspace.step("valid", lambda: self._validation_end(tokeniser))
        parts = plan(end["next_key"], self.read["bytes"], self.corpus.shards)
        # In the first shard, where fairseq looks for it.
        valid = functools.partial(items, self.runs, 0, end["next_key"], end["last_lines"])
        return [
            Part(f"{parts[0][0]}/valid", valid),
            *(
                Part(f"{shard}/train", functools.partial(items, self.runs, low, high))
                for shard, low, high in parts
            ),
        ]

    def describe(self, written: dict[str, dict]) -> dict:
        shards = list(dict.fromkeys(target.split("/")[0] for target in written))
        train = [written[f"{shard}/train"] for shard in shards]
        sums = {name: sum(counts[name] for counts in train) for name in train[0]}
        splits = {"train": sums, "valid": written[f"{shards[0]}/valid"]}
        return {
            **self.facts,
            "splits": {
                split: {"documents": found["items"], **{name: found[name] for name in COUNTS}}
                for split, found in splits.items()
            },
            "shards": shards,
            "replaced_documents": self.read["replaced"],
            "throughput": {
                "workers": self.workers,
                "text_mb": round(self.read["bytes"] / 1e6, 3),
                "reading_mb_per_core_second": _rate(self.read),
                "tokenising_mb_per_core_second": _rate(sums),
            },
        }

    def _validation_end(self, tokeniser: Tokeniser) -> dict:
        """Where the validation set ends: with the line that reaches its number of tokens.

        The rest of that line's document is left out of the training data too.
        """
        tokens, least = 0, self.corpus.valid_tokens
        for key, text in documents_between(self.runs, 0, self.set_aside):
            tokens += 1
            for number, ids in enumerate(tokeniser.encode(text.decode().split("\n")[:-1]), 1):
                tokens += len(ids) + 1
                if tokens >= least:
                    return {"next_key": key + 1, "last_lines": number}
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
    """Divide the keys from ``low`` on into shards, and those into parts: (shard, low, high).

    Args:
        total: bytes of text.
    """
    shards = shards or max(1, round(total / SHARD))
    each = max(1, math.ceil(total / shards / part_bytes(total)))
    count = shards * each
    digits = max(2, len(str(shards - 1)))
    edges = [low + (KEYS - low) * part // count for part in range(count + 1)]
    return [
        (f"shard{number // each:0{digits}d}", first, last)
        for number, (first, last) in enumerate(zip(edges, edges[1:]))
    ]


def most_workers(memory: float) -> int:
    """The number of processes that fit into ``memory`` GB (10^9 bytes), one at least."""
    return max(1, int((memory - _OWN_MEMORY) / _WORKER_MEMORY))


def is_of_that_size(text_bytes: float) -> bool:
    """Return whether the text may be the paper's, which is not published; only its size tells."""
    return text_bytes >= 0.9 * PAPER_BYTES


def _rate(done: dict) -> float:
    return round(done["bytes"] / 1e6 / max(done["seconds"], 1e-3), 3)
