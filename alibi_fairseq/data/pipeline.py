"""From text to a folder of binary data: read, split, tokenise, binarise, describe.

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
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..errors import BadInput
from ..files import check_disk, locked
from ..results import manifest as manifests
from ..results.stamps import Stamp, check_settings, once, read_stamp, write_settings
from .excerpt import beginning
from .parallel import map_in_order, progress
from .sources import not_utf8, text_bytes
from .tokenisers import END_OF_LINE, SPECIAL, Tokeniser

Item = TypeVar("Item")

SPLITS = ("train", "valid", "test")
#: Bytes of text that hold a token for sure: more than any tokeniser here reaches on average.
BYTES_PER_TOKEN = 8
_COUNTS = ("lines", "words", "bytes", "tokens", "unknown")
_SAMPLE = 256_000_000  # bytes of text that a tokeniser is trained on at most
_BATCH = 1 << 20  # bytes of text tokenised at a time
_PART = (8_000_000, 128_000_000)  # bytes of text in a part, least and most
_SUFFIXES = (".bin", ".idx")


def prepare(corpus: Corpus, out: str | os.PathLike, workers: int = 1) -> tuple[dict, bool]:
    """Make ``OUT/data-bin``; an interrupted preparation resumes.

    Returns:
        The manifest, and whether there was anything to do.
    """
    started = time.time()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are ours
    workers = corpus.processes(workers)
    settings = corpus.settings()
    if corpus.excerpt:
        settings["excerpt"] = corpus.excerpt
    workspace = Workspace(Path(out), settings)
    if manifest := workspace.finished():
        return manifest, False
    check_disk(out, corpus.disk_needed(corpus.files, corpus.excerpt), "The preparation")
    with workspace.locked():
        text = corpus.read(workspace, workers)
        tokeniser = corpus.tokeniser(workspace.work, text)
        dictionary, data_bin = workspace.work / "dict.txt", workspace.work / "data-bin"
        if not dictionary.exists():
            tokeniser.write_dictionary(dictionary)
        parts = text.parts(tokeniser)
        written = binarise(parts, workspace.work / "parts", data_bin, tokeniser, workers)
        # Not under temporary names, which a killed run would leave there to be published.
        for folder in {(data_bin / target).parent for target in written}:
            shutil.copyfile(dictionary, folder / dictionary.name)
        for file in {*tokeniser.files, *text.files} - {dictionary}:
            shutil.copyfile(file, data_bin / file.name)
        shards = [target.split("/")[0] for target in written if target.endswith("/train")]
        facts = {
            "splits": text.counts(written),
            "tokenizer": tokeniser.describe(),
            **({"shards": shards} if shards else {}),
            **text.facts,
        }
        manifest = manifests.describe(
            data_bin, settings=settings, seconds=time.time() - started, **facts
        )
        manifests.save(manifest, workspace.work)
        shutil.copyfile(workspace.work / manifests.FILE_NAME, data_bin / manifests.FILE_NAME)
        os.replace(data_bin, workspace.data_bin)
        shutil.rmtree(workspace.work)
    return manifest, True


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """A field of a :class:`Corpus`, with what ``argparse`` is told of it; without a default, required."""
    return field(default=default, metadata={"help": help, **more})


def positive(text: str) -> int:
    """A whole number above 0."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


@dataclass
class Text:
    """A text that has been read and split.

    Attributes:
        facts: its entries in the manifest.
        parts: the parts of the binary data, in the order of its files, given the tokeniser.
        sample: lines of the training split to train a tokeniser on.
        files: further files that belong beside the binary data.
        more: further counts of each split.
        item: what the manifest calls an item of the binary data, if it is not a line.
    """

    facts: dict
    parts: Callable[[Tokeniser], list[Part]]
    sample: Callable[[], Iterator[str]]
    files: tuple[Path, ...] = ()
    more: dict[str, dict] = field(default_factory=dict)
    item: str = ""

    @classmethod
    def of_files(cls, splits: dict[str, Path], facts: dict, **more: Any) -> Text:
        """A text with a file of lines for each split; an item of the binary data is a line."""

        def parts(_: Tokeniser) -> list[Part]:
            return [part for split, path in splits.items() for part in text_parts(path, split)]

        return cls(facts, parts, functools.partial(_sample, splits["train"]), **more)

    def counts(self, written: dict[str, dict]) -> dict[str, dict]:
        """The counts of each split, from those of each file."""
        splits: dict[str, Counter] = {}
        for target, found in written.items():
            splits.setdefault(Path(target).name, Counter()).update(found)
        return {
            split: {
                **({self.item: found["items"]} if self.item else {}),
                **{name: found[name] for name in _COUNTS},
                **self.more.get(split, {}),
            }
            for split, found in splits.items()
        }


def _sample(path: Path) -> Iterator[str]:
    """Lines spread evenly over a file."""
    every = -(-path.stat().st_size // _SAMPLE)
    with open(path, encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(stream):
            if number % every == 0:
                yield line.rstrip("\n")


@dataclass
class Corpus:
    """The policy of a corpus: reading, splits, tokeniser and checks.

    Attributes:
        name: name on the command line.
        summary: half a sentence about it.
        paper_bytes: size of the paper's text.
        disk: bytes that the preparation takes at its peak per byte of text.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    paper_bytes: ClassVar[float] = 0
    disk: ClassVar[float] = 3.5  # normalised text twice, the binary data twice for a while

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

    def read(self, workspace: Workspace, workers: int) -> Text:
        """The text, normalised, checked and split."""
        raise NotImplementedError

    def tokeniser(self, work: Path, text: Any) -> Tokeniser:
        """The tokeniser, trained on a sample of the text if need be; its files go into ``work``."""
        raise NotImplementedError


class Workspace:
    """``OUT/work`` holds the steps of an unfinished preparation, ``OUT/data-bin`` a finished one.

    Args:
        settings: JSON values that determine the output; preparations with different settings are
            never mixed.
    """

    _ADVICE = "choose another --out or delete that folder"

    def __init__(self, out: Path, settings: dict):
        self.out = out
        self.work = self.out / "work"
        self.data_bin = self.out / "data-bin"
        self.settings = settings

    def finished(self) -> dict | None:
        """The manifest if ``OUT/data-bin`` already holds the requested data, otherwise None.

        Raises:
            BadInput: it holds other data.
        """
        if not self.data_bin.exists():
            return None
        manifest = manifests.load(self.data_bin)
        if manifest is None:
            raise BadInput(
                f"{self.data_bin} exists but has no {manifests.FILE_NAME}, so it was not made by "
                "this command; choose another --out or move it away."
            )
        there = f"{self.data_bin} was prepared"
        check_settings(manifest["settings"], self.settings, there, self._ADVICE)
        shutil.rmtree(self.work, ignore_errors=True)
        return manifest

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out; bad input before the first step is done leaves nothing behind."""
        made_out = not self.out.exists()
        with locked(self.work / "lock", "--out", "preparation"):
            kept, there = (
                self.work / "settings.json",
                f"{self.work} holds an unfinished preparation",
            )
            check_settings(read_stamp(kept), self.settings, there, self._ADVICE)
            write_settings(kept, self.settings)
            try:
                yield
            except BadInput:
                if not (self.work / "steps").exists():
                    shutil.rmtree(self.work)
                    if made_out:
                        self.out.rmdir()
                raise

    def step(self, name: str, make: Callable[[], dict]) -> dict:
        """The JSON result of a step, which is done once and starts over if it was interrupted."""
        return once(Stamp(self.work / "steps" / f"{name}.json"), make)


@dataclass(frozen=True)
class Part:
    """A piece of ``TARGET.bin``, which one process writes.

    Attributes:
        items: gives its items. An item is one or more lines, each of which gets its ``</s>``.
    """

    target: str
    items: Callable[[], Iterable[list[str]]]


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
        Part(target, functools.partial(_lines, path, begin, end))
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
) -> dict[str, dict]:
    """Tokenise every part to a file in ``folder``, and join them to ``DESTINATION/TARGET.bin``.

    Parts and files that an earlier call has finished are kept.

    Returns:
        For each target the sums of lines, words, bytes, tokens, unknown tokens and items.
    """
    folder.mkdir(exist_ok=True)
    written: dict[str, dict] = {}
    pieces: dict[str, list[Path]] = {}
    work = functools.partial(_write, folder, tokeniser)
    with progress(None, "tokenising") as bar:
        for part, (piece, counts) in zip(parts, map_in_order(work, enumerate(parts), workers)):
            pieces.setdefault(part.target, []).append(piece)
            sums = written.setdefault(part.target, dict.fromkeys(counts, 0))
            for name, count in counts.items():
                sums[name] += count
            bar.update(counts["bytes"])
    join = functools.partial(_join, folder, destination, tokeniser.entries)
    with progress(len(pieces), "joining", "files") as bar:
        for _ in map_in_order(join, pieces.items(), workers):
            bar.update()
    return written


def _write(folder: Path, tokeniser: Tokeniser, task: tuple[int, Part]) -> tuple[Path, dict]:
    number, part = task
    prefix = folder / f"part{number:06d}"
    make = functools.partial(_write_items, part.items(), prefix, tokeniser)
    return prefix, once(Stamp(prefix.with_suffix(".json")), make)


def _write_items(items: Iterable[list[str]], prefix: Path, tokeniser: Tokeniser) -> dict:
    import torch

    counts = dict.fromkeys((*_COUNTS, "items"), 0)
    attempt = prefix.with_name(f".{prefix.name}-{os.getpid()}")
    builder = _builder(attempt, tokeniser.entries)
    end = END_OF_LINE - tokeniser.offset
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
    _finish(builder, attempt, prefix)
    return counts


def batches(items: Iterable[Item], most: int, size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """The items in lists, each to the item that brings its size to ``most``."""
    remaining = iter(items)
    while batch := list(beginning(remaining, most, size)):
        yield batch


def _join(folder: Path, destination: Path, entries: int, task: tuple[str, list[Path]]) -> None:
    target, pieces = task
    joined = destination / target
    if not joined.with_suffix(".idx").exists():
        joined.parent.mkdir(parents=True, exist_ok=True)
        attempt = folder / f".{target.replace('/', '-')}-{os.getpid()}"
        builder = _builder(attempt, entries)
        for piece in pieces:
            builder.merge_file_(str(piece))
        _finish(builder, attempt, joined)
    for piece in pieces:
        for suffix in _SUFFIXES:
            Path(f"{piece}{suffix}").unlink(missing_ok=True)


def _builder(prefix: Path, entries: int):
    from fairseq.data.indexed_dataset import make_builder

    return make_builder(f"{prefix}.bin", impl="mmap", vocab_size=entries)


def _finish(builder, attempt: Path, prefix: Path) -> None:
    builder.finalize(f"{attempt}.idx")
    for suffix in _SUFFIXES:
        os.replace(f"{attempt}{suffix}", f"{prefix}{suffix}")
