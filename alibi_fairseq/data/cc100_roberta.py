"""CC100+RoBERTa, or any other amount of text: shuffled by documents, sharded, sub-words.

An item of the data is a document: its lines, each with ``</s>``, and one more ``</s>`` at its end,
as RoBERTa's recipe makes of the empty line between documents. See data-prep/cc100-roberta/README.md.

Each document gets a 64-bit key from the seed and its place in the input; the shuffled order is the order
of the keys. Reading writes *runs*: documents that fit into memory, sorted by key. Any interval of keys is
then read back by taking its slice out of each run. So the order depends on nothing but the seed and the
input: not on memory, processes or interruptions.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from ..errors import UserInputError
from ..files import atomic_write, sha256_file
from ..results.completion import CompletionMarker, run_cached
from ..results.manifest import other_name
from .pipeline import BYTES_PER_TOKEN, CorpusBuilder, Part, option, part_bytes, positive
from .sources import file_list_digest, single_spaced, text_bytes, text_files, texts
from .tokenization import ByteLevelBpe, Tokenizer
from .truncation import batches
from .worker_pool import map_in_order, progress

CORPUS = "cc100-roberta"
PAPER_BYTES = 461e9
SHARD = 4e9  # bytes of text in a shard
KEYS = 1 << 64  # keys are below it
RUN = 128_000_000  # bytes of text in one run
# A longer document or line is cut there: each part is then shuffled as a document of its own.
LONGEST_DOCUMENT = 1 << 20  # bytes
_LONGEST_LINE = 1 << 20

_SAMPLE = 200_000_000  # bytes of text that a tokeniser is trained on at most
_LEAST_EXCERPT = 8_000_000  # bytes: several documents of the greatest length


@dataclass
class Cc100Roberta(CorpusBuilder):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "any amount of text, shuffled and sharded, sub-words"
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
            raise UserInputError(
                "--encoder-json and --vocab-bpe belong together; give both or neither."
            )
        if self._published:
            ByteLevelBpe(*self._published)  # fails before hours of work
        return {
            "sources": file_list_digest(self.files),
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
        replaced = write_sorted_chunks(self.files, self.seed, work / "runs", workers, most)
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
            raise UserInputError(
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

    def tokeniser(self, work: Path) -> Tokenizer:
        if self._published:
            return ByteLevelBpe(*self._published)
        return self.trained(work, self.vocab_size)

    def parts(self, work: Path, tokeniser: Tokenizer) -> list[Part]:
        runs = runs_in(work / "runs")
        size = text_bytes(runs)
        end, last_lines = self._validation_end(runs, self._set_aside(size), tokeniser)
        cut = shard_parts(end, size, self.shards)
        train: list[Part] = [
            (f"{shard}/train", functools.partial(items, runs, low, high))
            for shard, low, high in cut
        ]
        # In the first shard, where fairseq looks for it.
        first, *_ = cut[0]
        return [*train, (f"{first}/valid", functools.partial(items, runs, 0, end, last_lines))]

    def _validation_end(
        self, runs: list[Path], set_aside: int, tokeniser: Tokenizer
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
        raise UserInputError(
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


def shard_parts(low: int, total: int, shards: int | None) -> list[tuple[str, int, int]]:
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


def read(path: Path, most: int | None = None) -> Iterator[tuple[int, bytes]]:
    """(offset, text) of the documents of a file in their order, about the first ``most`` bytes of it.

    The offset is where the document begins in the unpacked text of its file. The text has single
    spaces, no empty lines, and every line ended; bytes that are not UTF-8 become U+FFFD.
    """
    begin = 0
    for _, stream in texts(path):
        end = begin
        for offset, text in _documents(stream, begin, most):
            yield offset, text
            end = offset + len(text)
        # The next text of an archive begins after everything that was read of this one.
        begin = end + 1
        if most is not None and begin >= most:
            return


def _documents(stream: BinaryIO, position: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Documents from the stream's place on; ``position`` is its number, ``end`` where to stop."""
    begun, size = position, 0
    lines: list[bytes] = []
    rest = b""
    while end is None or position < end or rest:
        raw = rest + stream.readline(_LONGEST_LINE)
        if not raw:
            break
        rest = b""
        if len(raw) >= _LONGEST_LINE and not raw.endswith(b"\n"):
            cut = raw.rfind(b" ") + 1 or len(raw)
            raw, rest = raw[:cut], raw[cut:]
        text = single_spaced(raw.decode("utf-8", "replace"))
        if lines and (not text or size + len(raw) > LONGEST_DOCUMENT):
            yield begun, b"".join(lines)
            lines, size = [], 0
        if text:
            if not lines:
                begun = position
            lines.append(text.encode() + b"\n")
            size += len(raw)
        position += len(raw)
    if lines:
        yield begun, b"".join(lines)


def write_sorted_chunks(
    files: list[Path], seed: int, folder: Path, workers: int, most: int | None = None
) -> int:
    """Read every file into sorted runs, except those that an earlier call has finished.

    A run holds the texts; the file beside it, with ``.npy``, their keys and where each ends.

    Args:
        most: bytes of text that are read in all, about.

    Returns:
        The number of documents with bytes that were not UTF-8.
    """
    folder.mkdir(exist_ok=True)
    tasks = []
    for number, path in enumerate(files):
        if most is None or most > 0:
            tasks.append((number, path, most))
            most = most and most - text_bytes([path])
    replaced = 0
    with progress(text_bytes(files), "reading") as bar:
        work = functools.partial(_write_runs_of, seed, folder)
        for record in map_in_order(work, tasks, workers):
            replaced += record["replaced"]
            bar.update(record["bytes"])
    return replaced


def runs_in(folder: Path) -> list[Path]:
    """The runs, in the order of the input."""
    return sorted(folder.glob("*.run"))


def _write_runs_of(seed: int, folder: Path, task: tuple[int, Path, int | None]) -> dict:
    file, path, most = task

    def write() -> dict:
        sums = {"bytes": 0, "replaced": 0}
        keyed = ((_key(seed, file, offset), text) for offset, text in read(path, most))
        for number, run in enumerate(batches(keyed, RUN, lambda document: len(document[1]))):
            sums["bytes"] += _write_run(folder / f"{file:05d}-{number:05d}.run", run)
            sums["replaced"] += sum(b"\xef\xbf\xbd" in text for _, text in run)
        return sums

    return run_cached(CompletionMarker(folder / f"{file:05d}.json"), write)


def _write_run(path: Path, run: list[tuple[int, bytes]]) -> int:
    """Write the documents in the order of their keys; returns their bytes."""
    run.sort(key=itemgetter(0))
    ends = list(accumulate(len(text) for _, text in run))
    with atomic_write(f"{path}.npy", "wb") as out:
        np.save(out, np.array([[key for key, _ in run], ends], dtype=np.uint64))
    with atomic_write(path, "wb") as out:
        out.writelines(text for _, text in run)
    return ends[-1]


def _key(seed: int, file: int, offset: int) -> int:
    digest = hashlib.blake2b(struct.pack("<qqq", seed, file, offset), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def documents_between(runs: list[Path], low: int, high: int) -> list[tuple[int, bytes]]:
    """(key, text) of all documents with low ≤ key < high, in the shuffled order."""
    found = [pair for run in runs for pair in _slice_of(run, low, high)]
    return sorted(found, key=itemgetter(0))


def _slice_of(run: Path, low: int, high: int) -> Iterator[tuple[int, bytes]]:
    keys, ends = np.load(f"{run}.npy", mmap_mode="r")
    first = int(np.searchsorted(keys, np.uint64(low)))
    last = len(keys) if high >= KEYS else int(np.searchsorted(keys, np.uint64(high)))
    at = int(ends[first - 1]) if first else 0
    with open(run, "rb") as stream:
        stream.seek(at)
        for key, end in zip(keys[first:last].tolist(), ends[first:last].tolist()):
            yield key, stream.read(end - at)
            at = end
