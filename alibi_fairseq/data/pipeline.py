"""From text to a folder of binary data: read, split, tokenise, binarise, describe.

:func:`prepare` is the same for every corpus. What distinguishes one corpus from another is a
:class:`Corpus`: a dataclass whose fields are the options of ``alibi-fairseq prepare``.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ..errors import BadInput
from ..files import check_disk, locked
from ..results import manifest as manifests
from ..results.stamps import Stamp, check_settings, once, read_stamp, write_settings
from .binary import COUNTS, Part, binarise, text_parts
from .sources import text_bytes
from .tokenisers import Tokeniser

SPLITS = ("train", "valid", "test")
_SAMPLE = 256_000_000  # bytes of text that a tokeniser is trained on at most
#: Bytes of text that hold a token for sure: more than any tokeniser here reaches on average.
BYTES_PER_TOKEN = 8


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
    workspace = Workspace(out, settings)
    if manifest := workspace.finished():
        return manifest, False
    check_disk(out, corpus.disk_needed(corpus.files, corpus.excerpt), "The preparation")
    with workspace.locked():
        text = corpus.read(workspace, workers)
        tokeniser = corpus.tokeniser(workspace.work, text)
        dictionary = workspace.work / "dict.txt"
        if not dictionary.exists():
            tokeniser.write_dictionary(dictionary)
        unfinished = workspace.work / "data-bin"
        parts = text.parts(workspace, tokeniser)
        written = binarise(parts, workspace.work / "parts", unfinished, tokeniser, workers)
        facts = {"tokenizer": tokeniser.describe(), **text.describe(written)}
        # Not under temporary names, which a killed run would leave there to be published.
        for folder in {(unfinished / target).parent for target in written}:
            shutil.copyfile(dictionary, folder / dictionary.name)
        for file in {*tokeniser.files, *text.files} - {dictionary}:
            shutil.copyfile(file, unfinished / file.name)
        manifest = manifests.describe(
            unfinished, settings=settings, seconds=time.time() - started, **facts
        )
        workspace.publish(manifest)
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
    """A text that has been read and split into files of lines.

    Attributes:
        splits: the text of each split; an item of the binary data is a line.
        facts: its entries in the manifest.
        files: further files that belong beside the binary data.
        more: further counts of each split.
    """

    splits: dict[str, Path]
    facts: dict
    files: tuple[Path, ...] = ()
    more: dict[str, dict] = field(default_factory=dict)

    def sample(self) -> Iterator[str]:
        """Lines of the training split, spread evenly over it, to train a tokeniser on."""
        path = self.splits["train"]
        every = -(-path.stat().st_size // _SAMPLE)
        with open(path, encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream):
                if number % every == 0:
                    yield line.rstrip("\n")

    def parts(self, workspace: Workspace, tokeniser: Tokeniser) -> list[Part]:
        """The parts of the binary data, in the order of its files."""
        return [part for split, path in self.splits.items() for part in text_parts(path, split)]

    def describe(self, written: dict[str, dict]) -> dict:
        """The manifest's entries, with the counts of each split from those of each file."""
        counts = {
            split: {**{name: written[split][name] for name in COUNTS}, **self.more.get(split, {})}
            for split in self.splits
        }
        return {"splits": counts, **self.facts}


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

    @cached_property
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

    def __init__(self, out: str | os.PathLike, settings: dict):
        self.out = Path(out)
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
            path, there = (
                self.work / "settings.json",
                f"{self.work} holds an unfinished preparation",
            )
            check_settings(read_stamp(path), self.settings, there, self._ADVICE)
            write_settings(path, self.settings)
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

    def publish(self, manifest: dict) -> None:
        """Move the finished binary data, with its manifest, to ``OUT/data-bin``: it appears at once."""
        manifests.save(manifest, self.work)
        shutil.copyfile(
            self.work / manifests.FILE_NAME, self.work / "data-bin" / manifests.FILE_NAME
        )
        os.replace(self.work / "data-bin", self.data_bin)
        shutil.rmtree(self.work)
