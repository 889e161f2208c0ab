"""From text to a folder of binary data: read and split, tokenise, binarise, describe.

:func:`prepare` is the same for every corpus. What distinguishes one corpus from another is a
:class:`Corpus`: a dataclass whose fields are the options of ``alibi-fairseq prepare``.

Tokens go straight into fairseq's own writer. By way of tokenised text and fairseq-preprocess the
same bytes come out, at a quarter of the speed (a test compares them).
"""

from __future__ import annotations

import functools
import io
import math
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..errors import BadInput
from ..files import check_disk, locked
from ..results import manifest as manifests
from ..results.stamps import Stamp, check_settings, once, read_stamp, write_settings
from .excerpt import batches
from .parallel import map_in_order, progress
from .sources import not_utf8, text_bytes
from .tokenisers import END_OF_LINE, SPECIAL, Tokeniser, train_sentencepiece

SPLITS = ("train", "valid", "test")
#: Bytes of text that hold a token for sure: more than any tokeniser here reaches on average.
BYTES_PER_TOKEN = 8
_COUNTS = ("lines", "words", "bytes", "tokens", "unknown")
_SAMPLE = 256_000_000  # bytes of text that a tokeniser is trained on at most
_BATCH = 1 << 20  # bytes of text tokenised at a time
_PART = (8_000_000, 128_000_000)  # bytes of text in a part, least and most
_SUFFIXES = (".bin", ".idx")
_ADVICE = "choose another --out or delete that folder"

#: A piece of ``TARGET.bin`` that one process writes: the target, and what gives its items. An item
#: is one or more lines, each of which gets its ``</s>``.
Part = tuple[str, Callable[[], Iterable[list[str]]]]


def prepare(corpus: Corpus, out: str | os.PathLike, workers: int = 1) -> tuple[dict, bool]:
    """Make ``OUT/data-bin``; an interrupted preparation, in ``OUT/work``, resumes.

    Returns:
        The manifest, and whether there was anything to do.
    """
    started = time.time()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are ours
    workers = corpus.processes(workers)
    settings = corpus.settings()
    if corpus.excerpt:
        settings["excerpt"] = corpus.excerpt
    if manifest := _finished(Path(out), settings):
        return manifest, False
    check_disk(out, corpus.disk_needed(corpus.files, corpus.excerpt), "The preparation")
    with _unfinished(Path(out), settings) as work:
        facts = once(_text_read(work), lambda: corpus.read(work, workers))
        tokeniser = corpus.tokeniser(work)
        dictionary, data_bin = work / "dict.txt", work / "data-bin"
        if not dictionary.exists():
            tokeniser.write_dictionary(dictionary)
        parts = corpus.parts(work, tokeniser)
        written = binarise(parts, work / "parts", data_bin, tokeniser, workers)
        # Not under temporary names, which a killed run would leave there to be published.
        for folder in {(data_bin / target).parent for target in written}:
            shutil.copyfile(dictionary, folder / dictionary.name)
        for file in {*tokeniser.files, *(work / name for name in corpus.beside)} - {dictionary}:
            shutil.copyfile(file, data_bin / file.name)
        shards = [target.split("/")[0] for target in written if target.endswith("/train")]
        facts = {
            "splits": _counts(written, corpus.item, facts.pop("more", {})),
            "tokenizer": tokeniser.describe(),
            **({"shards": shards} if shards else {}),
            **facts,
        }
        manifest = manifests.describe(
            data_bin, settings=settings, seconds=time.time() - started, **facts
        )
        manifests.save(manifest, work)
        shutil.copyfile(work / manifests.FILE_NAME, data_bin / manifests.FILE_NAME)
        os.replace(data_bin, Path(out) / "data-bin")
        shutil.rmtree(work)
    return manifest, True


def _finished(out: Path, settings: dict) -> dict | None:
    """The manifest if ``OUT/data-bin`` already holds the requested data, None if there is nothing.

    Raises:
        BadInput: it holds other data.
    """
    data_bin = out / "data-bin"
    if not data_bin.exists():
        return None
    manifest = manifests.load(data_bin)
    if manifest is None:
        raise BadInput(
            f"{data_bin} exists but has no {manifests.FILE_NAME}, so it was not made by "
            "this command; choose another --out or move it away."
        )
    check_settings(manifest["settings"], settings, f"{data_bin} was prepared", _ADVICE)
    shutil.rmtree(out / "work", ignore_errors=True)
    return manifest


@contextmanager
def _unfinished(out: Path, settings: dict) -> Iterator[Path]:
    """Lock ``OUT/work``, and never mix preparations with different settings there.

    Input that is refused before all of it has been read leaves nothing behind.
    """
    work, made_out = out / "work", not out.exists()
    with locked(work / "lock", "--out", "preparation"):
        kept, there = work / "settings.json", f"{work} holds an unfinished preparation"
        check_settings(read_stamp(kept), settings, there, _ADVICE)
        write_settings(kept, settings)
        try:
            yield work
        except BadInput:
            if not _text_read(work).path.exists():
                shutil.rmtree(work)
                if made_out:
                    out.rmdir()
            raise


def _text_read(work: Path) -> Stamp:
    return Stamp(work / "text.json")


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """A field of a :class:`Corpus`, with what ``argparse`` is told of it; without a default, required."""
    return field(default=default, metadata={"help": help, **more})


def positive(text: str) -> int:
    """A whole number above 0."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


@dataclass
class Corpus:
    """The policy of a corpus: reading, splits, tokeniser and checks.

    Attributes:
        name: name on the command line.
        summary: half a sentence about it.
        paper_bytes: size of the paper's text.
        disk: bytes that the preparation takes at its peak per byte of text.
        item: what the manifest calls an item of the binary data, if it is not a line.
        beside: files that :meth:`read` writes and that belong beside the binary data.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper_bytes: ClassVar[float] = 0
    disk: ClassVar[float] = 3.5  # normalised text twice, the binary data twice for a while
    item: ClassVar[str] = ""
    beside: ClassVar[tuple[str, ...]] = ()

    excerpt: int | None = field(
        default=None,
        kw_only=True,
        metadata={
            "help": "prepare only the beginning of the text, with about this many tokens; "
            "it never bears the name of a corpus of the paper",
            "type": positive,
            "metavar": "TOKENS",
        },
    )

    def settings(self) -> dict:
        """JSON values that determine the output, after a check of the options."""
        raise NotImplementedError

    def processes(self, workers: int) -> int:
        """The number of processes that are used of those that are allowed."""
        return workers

    @functools.cached_property
    def files(self) -> list[Path]:
        """The files that are read; none before a download."""
        raise NotImplementedError

    @classmethod
    def disk_needed(cls, files: Sequence[Path], excerpt: int | None = None) -> float:
        """Bytes that a preparation takes at its peak, about; without files: of the paper's text."""
        text = text_bytes(files) if files else cls.paper_bytes
        return cls.disk * min(text, excerpt * BYTES_PER_TOKEN if excerpt else math.inf)

    def read(self, work: Path, workers: int) -> dict:
        """Write the text, normalised, checked and split, into a folder.

        Returns:
            Its entries in the manifest; ``more`` holds further counts of each split.
        """
        raise NotImplementedError

    def texts(self, work: Path) -> dict[str, Path]:
        """The text of each split, a file of lines."""
        return {split: work / f"{split}.txt" for split in SPLITS}

    def sample(self, work: Path) -> Iterator[str]:
        """Lines spread evenly over the training split, to train a tokeniser on."""
        path = self.texts(work)["train"]
        every = -(-path.stat().st_size // _SAMPLE)
        with open(path, encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream):
                if number % every == 0:
                    yield line.rstrip("\n")

    def tokeniser(self, work: Path) -> Tokeniser:
        """The tokeniser, trained on a sample of the text if need be; its files go into ``work``."""
        raise NotImplementedError

    def trained(self, work: Path, entries: int) -> Tokeniser:
        """A sentencepiece BPE with that many dictionary entries."""
        return train_sentencepiece(self.sample(work), work / "sentencepiece.model", entries)

    def parts(self, work: Path, tokeniser: Tokeniser) -> list[Part]:
        """The parts of the binary data, in the order of its files; here an item is a line."""
        return [
            part for split, path in self.texts(work).items() for part in text_parts(path, split)
        ]


def part_bytes(total: int) -> float:
    """Bytes of text in each part of a text of that size."""
    return min(max(total / 64, _PART[0]), _PART[1])


def text_parts(path: Path, target: str) -> list[Part]:
    """The parts of a file of text; an item is a line."""
    size = path.stat().st_size
    cuts = [0]
    with open(path, "rb") as stream:
        while (at := cuts[-1] + round(part_bytes(size))) < size:
            stream.seek(at)
            stream.readline()
            cuts.append(stream.tell())
    return [
        (target, functools.partial(_lines, path, begin, end))
        for begin, end in zip(cuts, [*cuts[1:], size])
    ]


def _lines(path: Path, begin: int, end: int) -> Iterator[list[str]]:
    with open(path, "rb") as stream:
        stream.seek(begin)
        while begin < end:
            block = stream.read(min(_BATCH, end - begin))
            if not block.endswith(b"\n"):
                block += stream.readline()
            begin += len(block)
            try:
                text = block.decode()
            except UnicodeDecodeError as error:
                raise not_utf8(path, error) from error
            # Universal newlines, as fairseq-preprocess reads.
            for line in io.StringIO(text, newline=None):
                yield [line.rstrip("\n")]


def binarise(
    parts: list[Part], folder: Path, destination: Path, tokeniser: Tokeniser, workers: int
) -> dict[str, Counter]:
    """Tokenise every part to a file in ``folder``, and join them to ``DESTINATION/TARGET.bin``.

    Parts and files that an earlier call has finished are kept.

    Returns:
        For each target the sums of lines, words, bytes, tokens, unknown tokens and items.
    """
    folder.mkdir(exist_ok=True)
    written: dict[str, Counter] = {}
    pieces: dict[str, list[Path]] = {}
    numbered = [(folder / f"part{number:06d}", part) for number, part in enumerate(parts)]
    work = functools.partial(_write, tokeniser)
    with progress(None, "tokenising") as bar:
        for (piece, (target, _)), counts in zip(numbered, map_in_order(work, numbered, workers)):
            pieces.setdefault(target, []).append(piece)
            written.setdefault(target, Counter()).update(counts)
            bar.update(counts["bytes"])
    join = functools.partial(_join, folder, destination, tokeniser.entries)
    with progress(len(pieces), "joining", "files") as bar:
        for _ in map_in_order(join, pieces.items(), workers):
            bar.update()
    return written


def _counts(written: dict[str, Counter], item: str, more: dict[str, dict]) -> dict[str, dict]:
    """The counts of each split, from those of each of its files."""
    splits: dict[str, Counter] = {}
    for target, found in written.items():
        splits.setdefault(Path(target).name, Counter()).update(found)
    return {
        split: {
            **({item: found["items"]} if item else {}),
            **{name: found[name] for name in _COUNTS},
            **more.get(split, {}),
        }
        for split, found in splits.items()
    }


def _write(tokeniser: Tokeniser, task: tuple[Path, Part]) -> dict:
    piece, (_, items) = task
    make = functools.partial(_write_items, items(), piece, tokeniser)
    return once(Stamp(piece.with_suffix(".json")), make)


def _write_items(items: Iterable[list[str]], piece: Path, tokeniser: Tokeniser) -> dict:
    import torch

    counts = dict.fromkeys((*_COUNTS, "items"), 0)
    end = END_OF_LINE - tokeniser.offset
    with _builder(piece, piece.parent, tokeniser.entries) as builder:
        for batch in batches(items, _BATCH, lambda lines: sum(map(len, lines))):
            encoded = iter(tokeniser.encode([line for lines in batch for line in lines]))
            for lines in batch:
                ids: list[int] = []
                for line in lines:
                    ids += next(encoded)
                    ids.append(end)
                    counts["words"] += len(line.split())
                    counts["bytes"] += len(line.encode()) + 1
                tokens = np.array(ids, dtype=np.int32) + tokeniser.offset
                builder.add_item(torch.from_numpy(tokens))
                counts["items"] += 1
                counts["lines"] += len(lines)
                counts["tokens"] += len(ids)
                counts["unknown"] += int((tokens < SPECIAL).sum()) - len(lines)
    return counts


def _join(folder: Path, destination: Path, entries: int, task: tuple[str, list[Path]]) -> None:
    target, pieces = task
    joined = destination / target
    if not joined.with_suffix(".idx").exists():
        joined.parent.mkdir(parents=True, exist_ok=True)
        with _builder(joined, folder, entries) as builder:
            for piece in pieces:
                builder.merge_file_(str(piece))
    for piece in pieces:
        for suffix in _SUFFIXES:
            Path(f"{piece}{suffix}").unlink(missing_ok=True)


@contextmanager
def _builder(prefix: Path, folder: Path, entries: int) -> Iterator:
    """fairseq's writer of ``PREFIX.bin`` and ``.idx``, which appear when the block ends."""
    from fairseq.data.indexed_dataset import make_builder

    attempt = folder / f".{prefix.parent.name}-{prefix.name}-{os.getpid()}"
    builder = make_builder(f"{attempt}.bin", impl="mmap", vocab_size=entries)
    yield builder
    builder.finalize(f"{attempt}.idx")
    for suffix in _SUFFIXES:
        os.replace(f"{attempt}{suffix}", f"{prefix}{suffix}")
