"""The texts given for the paper's corpora, and the data made of them: prepared, and at a small scale cut."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..data import bookcorpus, cc100_roberta, wikitext103
from ..data.pipeline import Corpus
from ..data.sources import text_bytes
from ..errors import BadInput
from ..paper.recipe import Scale
from ..results import manifest as manifests
from ..results.stamps import Stamp
from .command import Command
from .run import ALIBI

#: How each corpus is prepared, and what its text is read as: other texts' folders are named after it.
KINDS: dict[str, tuple[type[Corpus], str]] = {
    wikitext103.CORPUS: (wikitext103.WikiText103, "words"),
    bookcorpus.CORPUS: (bookcorpus.BookCorpus, "books"),
    cc100_roberta.CORPUS: (cc100_roberta.Cc100Roberta, "documents"),
}


@dataclass(frozen=True)
class Data:
    """The data folder that fairseq reads: prepared from a text, and at a small scale cut."""

    root: Path
    corpus: str  # of the paper
    given: Path | None  # the text: a file or a folder; None: not given, for a dry run
    other: bool  # whether it may be another text than the paper's
    scale: Scale

    @property
    def path(self) -> Path:
        return self.given or Path(self.corpus.upper())

    @property
    def name(self) -> str:
        """The name of the text: that of the paper's corpus only if no other is allowed."""
        return manifests.other_name(self.path) if self.other and self.given else self.corpus

    @property
    def label(self) -> str:
        """A folder name for everything made from it."""
        other = self.other and self.given
        return f"{self.name}-as-{KINDS[self.corpus][1]}" if other else self.corpus

    @property
    def folder(self) -> Path:
        """The working folder of the preparation."""
        return self.root / self.label

    @property
    def data_bin(self) -> Path:
        return self.folder / "data-bin"

    @property
    def excerpt(self) -> Path:
        """The folder of the excerpt; its name is the text's name in all results."""
        return self.folder / f"{self.name}-{self.scale.name}"

    @property
    def manifest(self) -> dict:
        """Empty before the preparation."""
        return (manifests.load(self.data_bin) if self.data_bin.is_dir() else None) or {}

    @property
    def argument(self) -> str:
        """fairseq's data argument; before the preparation as far as it is known."""
        if self.scale.excerpt:
            return str(self.excerpt)
        manifest = self.manifest
        if not manifest and self.corpus == cc100_roberta.CORPUS:
            manifest = {"shards": ["shard00", "…"]}
        return manifests.data_argument(self.data_bin, manifest)

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
        return self.excerpt.name if self.scale.excerpt else self.manifest["corpus"]

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

    def commands(self) -> list[Command]:
        """The preparation, and at a small scale the excerpt."""
        words = ["prepare", self.corpus]
        for option, value in self._source.items():
            words += [] if option == "sources" else ["--" + option.replace("_", "-")]
            words += [] if value is True else [str(self.path)]
        words += ["--out", str(self.folder), *self._flags]
        log = self.folder / "prepare.log"
        prepare = Command(f"preparing {self.name}", [*ALIBI, *words], log)
        if not self.scale.excerpt:
            return [prepare]
        first, *_ = manifests.data_argument(self.data_bin, self.manifest).split(":")
        argv = [sys.executable, "-m", "alibi_fairseq.data.excerpt", first, str(self.excerpt)]
        argv += [f"{split}={most}" for split, most in self.scale.excerpt.items()]
        argv += ["--words", str(self.scale.vocabulary)]
        return [prepare, Command(f"taking an excerpt of {self.name}", argv, log)]

    def check(self) -> float:
        """Check that the data can be made; returns the bytes of disk that this takes at its peak."""
        if self._prepared.holds():
            return 0
        what, size = "", text_bytes(self._policy.files)
        if self.corpus == wikitext103.CORPUS:
            self._policy.settings()
        elif self.corpus == bookcorpus.CORPUS and not bookcorpus.is_line_edition([self.path]):
            what = "one file per book: the Toronto BookCorpus has one sentence per line"
        elif self.corpus == cc100_roberta.CORPUS and not cc100_roberta.is_of_that_size(size):
            what = f"less text than the paper's {cc100_roberta.PAPER_BYTES / 1e9:.0f} GB"
        if what and not self.other:
            allow = "--allow-other-text accepts it under its own name"
            raise BadInput(f"--corpus {self.corpus}={self.path}: {what}; {allow}.")
        if self._prepared.path.is_file() and self.data_bin.is_dir():
            raise BadInput(
                f"{self.data_bin} was prepared from other text or with other settings; move "
                f"{self.folder} away or choose another --work-dir."
            )
        return self.disk_needed

    def prepare(self) -> None:
        """Do what is not done yet, see :meth:`.Command.run`."""
        if not self._prepared.holds():
            self.commands()[0].run()
            if not self.other and not self.scale.excerpt and not self.genuine:
                raise BadInput(
                    f"{self.path} turned out not to be the paper's {self.corpus}; "
                    "--allow-other-text accepts it under its own name."
                )
            self._prepared.write()
        if self.scale.excerpt and not self._cut.holds():
            self.commands()[1].run()
            self._cut.write()

    @property
    def disk_needed(self) -> float:
        """Bytes that the preparation takes at its peak, about; without the text: of the paper's."""
        files = self._policy.files if self.given else []
        return self._policy.disk_needed(files, sum(self.scale.excerpt.values()))

    @property
    def _source(self) -> dict[str, Any]:
        """The options of the preparation that name the text."""
        options: dict[str, Any] = {"sources": [self.path]}
        if self.corpus == wikitext103.CORPUS:
            options = {"from_dir" if self.path.is_dir() else "archive": self.path}
        if self.other and self.given and self.corpus != cc100_roberta.CORPUS:
            options["allow_other_text"] = True
        return options

    @cached_property
    def _policy(self) -> Corpus:
        return KINDS[self.corpus][0](**self._source)

    @property
    def _flags(self) -> list[str]:
        """Of the preparation; at a small scale it reads only the beginning of the text.

        That holds at least the tokens that the excerpt keeps.
        """
        flags = self.scale.preparation(self.corpus)
        if self.scale.excerpt:
            flags = [*flags, "--excerpt", str(sum(self.scale.excerpt.values()))]
        return flags

    @property
    def _prepared(self) -> Stamp:
        return Stamp(
            self.folder / "prepared.json",
            {"corpus": self.corpus, "flags": self._flags, "other": self.other},
            self._policy.files if self.given else [],
            [self.data_bin / manifests.FILE_NAME],
        )

    @property
    def _cut(self) -> Stamp:
        return Stamp(
            self.folder / f"{self.excerpt.name}.json",
            {"tokens": self.scale.excerpt, "words": self.scale.vocabulary},
            [self.data_bin / manifests.FILE_NAME],
            [self.excerpt / name for name in ("train.bin", "valid.bin", "dict.txt")],
        )
