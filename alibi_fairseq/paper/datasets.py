"""The texts given for the paper's corpora, and the data made of them: prepared, and at a small scale cut."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..data import bookcorpus, cc100_roberta, wikitext103
from ..data.corpus_builder import CorpusBuilder
from ..data.sources import text_bytes
from ..data.truncation import excerpt, first
from ..errors import UserInputError
from ..results import manifest as manifests
from ..results.completion import CompletionMarker
from ..results.data_folder import DataFolder
from ..runs.child_process import ChildProcess
from ..runs.run import ALIBI
from .recipe import Scale

#: How each corpus is prepared, and what its text is read as: other texts' folders are named after it.
KINDS: dict[str, tuple[type[CorpusBuilder], str]] = {
    wikitext103.CORPUS: (wikitext103.WikiText103, "words"),
    bookcorpus.CORPUS: (bookcorpus.BookCorpus, "books"),
    cc100_roberta.CORPUS: (cc100_roberta.Cc100Roberta, "documents"),
}
ALLOW = "--allow-other-text accepts it under its own name"


@dataclass(frozen=True)
class PaperDataset:
    """The data folder that fairseq reads: prepared from a text, and at a small scale cut."""

    root: Path
    corpus: str  # of the paper
    path: Path  # of the text, a file or a folder; a dry run does without
    other: bool  # whether it may be another text than the paper's
    scale: Scale

    @property
    def name(self) -> str:
        """The name of the text: that of the paper's corpus only if no other is allowed."""
        return manifests.other_name(self.path) if self.other else self.corpus

    @property
    def folder(self) -> Path:
        """The working folder of the preparation; all that is made from the text is named like it."""
        read_as = f"-as-{KINDS[self.corpus][1]}" if self.other else ""
        return self.root / f"{self.name}{read_as}"

    @property
    def data_bin(self) -> Path:
        return self.folder / "data-bin"

    @property
    def part(self) -> Path:
        """The folder of the part that is kept; its name is the text's name in all results."""
        return self.folder / f"{self.name}-{self.scale.name}"

    @property
    def manifest(self) -> dict:
        """Empty before the preparation."""
        return (DataFolder.open(self.data_bin).manifest if self.data_bin.is_dir() else None) or {}

    @property
    def argument(self) -> str:
        """fairseq's data argument; before the preparation as far as it is known."""
        if self.scale.excerpt:
            return str(self.part)
        shards = {"shards": ["shard00", "…"]} if self.corpus == cc100_roberta.CORPUS else {}
        return manifests.data_argument(self.data_bin, self.manifest or shards)

    @property
    def prepared(self) -> bool:
        return self._prepared.holds() and (not self.scale.excerpt or self._cut.holds())

    @property
    def genuine(self) -> bool:
        """Whether it is the whole of the paper's corpus; call it after the preparation."""
        return not self.scale.excerpt and self.manifest["identified_by"] is not None

    @property
    def text(self) -> str:
        """The name of the text in results; call it after the preparation."""
        return self.part.name if self.scale.excerpt else self.manifest["corpus"]

    @property
    def identity(self) -> dict:
        """Settings that identify the data."""
        files = self.manifest.get("files")
        listing = json.dumps(files, sort_keys=True)
        return {
            "data_sha256": files and hashlib.sha256(listing.encode()).hexdigest(),
            "excerpt": self.scale.excerpt,
            "vocabulary": self.scale.vocabulary,
        }

    @property
    def preparation(self) -> ChildProcess:
        """The preparation, of which a part is kept at a small scale."""
        argv = ["prepare", self.corpus]
        for option, value in self._source.items():
            argv += [] if option == "sources" else ["--" + option.replace("_", "-")]
            argv += [] if value is True else [str(self.path)]
        argv += ["--out", str(self.folder), *self._flags]
        return ChildProcess(f"preparing {self.name}", [*ALIBI, *argv], self.folder / "prepare.log")

    def check(self) -> None:
        """Refuse a text that is not the paper's where that is known without preparing it."""
        if self.other:
            return
        what = ""
        if self.corpus == bookcorpus.CORPUS and not bookcorpus.is_line_edition([self.path]):
            what = "one file per book: the Toronto BookCorpus has one sentence per line"
        size = text_bytes(self._policy.files)
        if self.corpus == cc100_roberta.CORPUS and not cc100_roberta.has_paper_size(size):
            what = f"less text than the paper's {cc100_roberta.PAPER_BYTES / 1e9:.0f} GB"
        if what:
            raise UserInputError(f"--corpus {self.corpus}={self.path}: {what}; {ALLOW}.")

    def prepare(self) -> None:
        """Do what is not done yet, see :meth:`.ChildProcess.run`."""
        if not self._prepared.holds():
            self.preparation.run()
            if not self.other and not self.scale.excerpt and not self.genuine:
                raise UserInputError(
                    f"{self.path} is not the paper's {self.corpus} after all; {ALLOW}."
                )
            self._prepared.write()
        if self.scale.excerpt and not self._cut.holds():
            shard, *_ = self.manifest.get("shards", [""])
            kept = {split: first(tokens) for split, tokens in self.scale.excerpt.items()}
            excerpt(self.data_bin / shard, self.part, kept, self.scale.vocabulary)
            self._cut.write()

    @property
    def _source(self) -> dict[str, Any]:
        """The options of the preparation that name the text."""
        options: dict[str, Any] = {"sources": [self.path]}
        if self.corpus == wikitext103.CORPUS:
            options = {"from_dir" if self.path.is_dir() else "archive": self.path}
        if self.other and self.corpus != cc100_roberta.CORPUS:
            options["allow_other_text"] = True
        return options

    @cached_property
    def _policy(self) -> CorpusBuilder:
        return KINDS[self.corpus][0](**self._source)

    @property
    def _files(self) -> Sequence[Path]:
        return self._policy.files if self.path.exists() else []

    @property
    def _flags(self) -> list[str]:
        """Of the preparation; at a small scale it reads only the beginning of the text.

        That holds at least the tokens that the excerpt keeps.
        """
        flags = self.scale.prepare.get(self.corpus, "").split()
        if self.scale.excerpt:
            flags += ["--excerpt", str(sum(self.scale.excerpt.values()))]
        return flags

    @property
    def _prepared(self) -> CompletionMarker:
        return CompletionMarker(
            self.folder / "prepared.json",
            {"corpus": self.corpus, "flags": self._flags, "other": self.other},
            self._files,
            [self.data_bin / manifests.FILE_NAME],
        )

    @property
    def _cut(self) -> CompletionMarker:
        return CompletionMarker(
            self.folder / f"{self.part.name}.json",
            {"tokens": self.scale.excerpt, "words": self.scale.vocabulary},
            [self.data_bin / manifests.FILE_NAME],
            [self.part / name for name in ("train.bin", "valid.bin", "dict.txt")],
        )
