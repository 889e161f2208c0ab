"""From text to a folder of binary data: read and split, tokenise, binarise, describe.

:func:`prepare` is the same for every corpus. What distinguishes one corpus from another is a
:class:`CorpusBuilder`: a dataclass whose fields are the options of ``alibi-fairseq prepare``.

Tokens go straight into fairseq's own writer. By way of tokenised text and fairseq-preprocess the
same bytes come out, at a quarter of the speed (a test compares them).
"""

from __future__ import annotations

import functools
import io
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..errors import UserInputError
from ..files import check_disk, locked
from ..options import option
from ..results import manifest as manifests
from ..results.completion import (
    CompletionMarker,
    check_settings,
    read_stamp,
    run_cached,
    write_settings,
)
from ..results.data_folder import DataFolder
from .sources import text_bytes
from .tokenization import END_OF_LINE, SPECIAL, Tokenizer, train_sentencepiece
from .truncation import batches, write_lines
from .worker_pool import map_in_order, progress

if TYPE_CHECKING:
    from torch import Tensor

SPLITS = ("train", "valid", "test")
#: Bytes of text that hold a token for sure: more than any tokeniser here reaches on average.
BYTES_PER_TOKEN = 8
_COUNTS = ("lines", "words", "bytes", "tokens", "unknown")
_SAMPLE = 256_000_000  # bytes of text that a tokeniser is trained on at most
_BATCH = 1 << 20  # bytes of text tokenised at a time
_PART = (8_000_000, 128_000_000)  # bytes of text in a part, least and most
_READ = "text.json"  # in OUT/work: the text has been read
_ADVICE = "choose another --out or delete that folder"

#: A piece of ``TARGET.bin`` that one process writes: the target, and what gives its items. An item
#: is one or more lines, each of which gets its ``</s>``.
Part = tuple[str, Callable[[], Iterable[list[str]]]]


def prepare(corpus: CorpusBuilder, out: str | os.PathLike, workers: int = 1) -> tuple[dict, bool]:
    """Make ``OUT/data-bin``; an interrupted preparation, in ``OUT/work``, resumes.

    Returns:
        The manifest, and whether there was anything to do.
    """
    started = time.time()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the processes are ours
    settings = corpus.settings()
    if corpus.excerpt:
        settings["excerpt"] = corpus.excerpt
    if manifest := _finished(Path(out), settings):
        return manifest, False
    check_disk(out, corpus.disk_needed, "The preparation")
    with _unfinished(Path(out), settings) as work:
        facts = run_cached(CompletionMarker(work / _READ), lambda: corpus.read(work, workers))
        tokeniser = corpus.tokeniser(work)
        dictionary, data_bin = work / "dict.txt", work / "data-bin"
        if not dictionary.exists():
            tokeniser.write_dictionary(dictionary)
        parts = corpus.parts(work, tokeniser)
        written = binarise(parts, work / "parts", data_bin, tokeniser, workers)
        targets = dict.fromkeys(target for target, _ in parts)
        # Not under temporary names, which a killed run would leave there to be published.
        for folder in {(data_bin / target).parent for target in targets}:
            shutil.copyfile(dictionary, folder / dictionary.name)
        for file in {*tokeniser.files} - {dictionary}:
            shutil.copyfile(file, data_bin / file.name)
        shards = [target.split("/")[0] for target in targets if target.endswith("/train")]
        sharded = {"shards": shards} if shards else {}
        more = facts.pop("more", {})
        splits = {
            split: {
                **({corpus.item: found["items"]} if corpus.item else {}),
                **{name: found[name] for name in _COUNTS},
                **more.get(split, {}),
            }
            for split, found in written.items()
        }
        facts = {"splits": splits, "tokenizer": tokeniser.describe(), **sharded, **facts}
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
        UserInputError: it holds other data.
    """
    data_bin = out / "data-bin"
    if not data_bin.exists():
        return None
    manifest = DataFolder.open(data_bin).manifest
    if manifest is None:
        raise UserInputError(
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
    work = out / "work"
    with locked(work / "lock", "--out", "preparation"):
        kept, there = work / "settings.json", f"{work} holds an unfinished preparation"
        check_settings(read_stamp(kept), settings, there, _ADVICE)
        write_settings(kept, settings)
        try:
            yield work
        except UserInputError:
            if not (work / _READ).exists():
                shutil.rmtree(work)
            raise


def positive(text: str) -> int:
    """A whole number above 0."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def percentage(text: str) -> float:
    """A share of the text that is held out: above 0 and at most 25 percent."""
    if not 0 < (share := float(text)) <= 25:
        raise ValueError
    return share


@dataclass
class CorpusBuilder:
    """The policy of a corpus: reading, splits, tokeniser and checks.

    Attributes:
        name: name on the command line.
        summary: half a sentence about it.
        download_bytes: size of the text that is fetched where there are no files.
        disk: bytes that the preparation takes at its peak per byte of text.
        item: what the manifest calls an item of the binary data, if it is not a line.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    download_bytes: ClassVar[float] = 0
    disk: ClassVar[float] = 3.5  # normalised text twice, the binary data twice for a while
    item: ClassVar[str] = ""

    _: KW_ONLY
    excerpt: int | None = option(
        "prepare only the beginning of the text, with about this many tokens; it never bears the "
        "name of a corpus of the paper",
        None,
        type=positive,
        metavar="TOKENS",
    )

    def settings(self) -> dict:
        """JSON values that determine the output, after a check of the options."""
        raise NotImplementedError

    @functools.cached_property
    def files(self) -> list[Path]:
        """The files that are read; none before a download."""
        raise NotImplementedError

    @property
    def disk_needed(self) -> float:
        """Bytes that the preparation takes at its peak, about."""
        text = text_bytes(self.files) or self.download_bytes
        return self.disk * min(text, self.excerpt * BYTES_PER_TOKEN if self.excerpt else text)

    def read(self, work: Path, workers: int) -> dict:
        """Write the text, normalised, checked and split, into a folder, and what belongs beside the
        binary data into its ``data-bin``.

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

    def tokeniser(self, work: Path) -> Tokenizer:
        """The tokeniser, trained on a sample of the text if need be; its files go into ``work``."""
        raise NotImplementedError

    def trained(self, work: Path, entries: int) -> Tokenizer:
        """A sentencepiece BPE with that many dictionary entries."""
        return train_sentencepiece(self.sample(work), work / "sentencepiece.model", entries)

    def parts(self, work: Path, tokeniser: Tokenizer) -> list[Part]:
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
        # Lines end as for fairseq-preprocess, with any of \n, \r and \r\n.
        for line in io.TextIOWrapper(stream, encoding="utf-8", newline=""):
            yield [line.rstrip("\r\n")]
            begin += len(line.encode())
            if begin >= end:
                return


def binarise(
    parts: list[Part], folder: Path, destination: Path, tokeniser: Tokenizer, workers: int
) -> dict[str, Counter]:
    """Tokenise every part to a file in ``folder``, and join them to ``DESTINATION/TARGET.bin``.

    Parts and files that an earlier call has finished are kept.

    Returns:
        For each split the sums of lines, words, bytes, tokens, unknown tokens and items.
    """
    folder.mkdir(exist_ok=True)
    written: dict[str, Counter] = {}
    pieces: dict[str, list[Path]] = {}
    numbered = [(folder / f"part{number:06d}", part) for number, part in enumerate(parts)]
    work = functools.partial(_write, tokeniser)
    with progress(None, "tokenising") as bar:
        for (piece, (target, _)), counts in zip(numbered, map_in_order(work, numbered, workers)):
            pieces.setdefault(target, []).append(piece)
            written.setdefault(Path(target).name, Counter()).update(counts)
            bar.update(counts.get("bytes", 0))
    join = functools.partial(_join, folder, destination, tokeniser.entries)
    for _ in map_in_order(join, pieces.items(), workers):
        pass
    return written


def _write(tokeniser: Tokenizer, task: tuple[Path, Part]) -> dict:
    piece, (_, items) = task

    def write() -> Counter:
        counts: Counter[str] = Counter()
        write_lines(piece, _tokenised(items(), tokeniser, counts), tokeniser.entries)
        return counts

    return run_cached(CompletionMarker(piece.with_suffix(".json")), write)


def _tokenised(
    items: Iterable[list[str]], tokeniser: Tokenizer, counts: Counter[str]
) -> Iterator[Tensor]:
    import torch

    end = END_OF_LINE - tokeniser.offset
    for batch in batches(items, _BATCH, lambda lines: sum(map(len, lines))):
        encoded = iter(tokeniser.encode([line for lines in batch for line in lines]))
        for lines in batch:
            ids: list[int] = []
            for _ in lines:
                ids += [*next(encoded), end]
            tokens = np.array(ids, dtype=np.int32) + tokeniser.offset
            counts["items"] += 1
            counts["lines"] += len(lines)
            counts["words"] += sum(len(line.split()) for line in lines)
            counts["bytes"] += sum(len(line.encode()) + 1 for line in lines)
            counts["tokens"] += len(ids)
            counts["unknown"] += int((tokens < SPECIAL).sum()) - len(lines)
            yield torch.from_numpy(tokens)


def _join(folder: Path, destination: Path, entries: int, task: tuple[str, list[Path]]) -> None:
    from fairseq.data.indexed_dataset import make_builder

    target, pieces = task

    def join() -> None:
        joined = destination / target
        joined.parent.mkdir(parents=True, exist_ok=True)
        builder = make_builder(f"{joined}.bin", impl="mmap", vocab_size=entries)
        for piece in pieces:
            builder.merge_file_(str(piece))
        builder.finalize(f"{joined}.idx")

    run_cached(CompletionMarker(folder / f"{target.replace('/', '-')}.json"), join)
    for piece in pieces:
        piece.with_suffix(".bin").unlink(missing_ok=True)
        piece.with_suffix(".idx").unlink(missing_ok=True)
