"""The texts given for the paper's corpora, and the data made of them: prepared, and at a small scale cut."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from ..data import bookcorpus, cc100_roberta, wikitext103
from ..data.bookcorpus import is_line_edition
from ..data.pipeline import SPLITS, Corpus
from ..data.sources import text_bytes, text_files
from ..errors import BadInput
from ..paper.recipe import Scale
from ..results import manifest as manifests
from ..results.manifest import other_name
from ..results.stamps import Stamp
from .command import Command
from .run import ALIBI

KINDS: dict[str, type[Corpus]] = {
    wikitext103.CORPUS: wikitext103.WikiText103,
    bookcorpus.CORPUS: bookcorpus.BookCorpus,
    cc100_roberta.CORPUS: cc100_roberta.Cc100Roberta,
}
#: The unit in which a corpus's preparation reads text; distinguishes the folders of other texts.
UNITS = {"wikitext-103": "words", "bookcorpus": "books", "cc100-roberta": "documents"}


@dataclass(frozen=True)
class Source:
    """A corpus of the paper, or a text used in its place.

    Attributes:
        corpus: the corpus's name.
        path: file or folder.
        other: whether another text is allowed.
    """

    corpus: str
    path: Path
    other: bool

    @property
    def text(self) -> str:
        """The name of the text: that of the paper's corpus only if no other is allowed."""
        return other_name(self.path) if self.other else self.corpus

    @property
    def folder(self) -> str:
        """A folder name for everything made from it."""
        return f"{self.text}-as-{UNITS[self.corpus]}" if self.other else self.corpus

    @property
    def files(self) -> list[Path]:
        """All files that are read."""
        if self.corpus == wikitext103.CORPUS and self.path.is_dir():
            return [self.path / f"wiki.{split}.tokens" for split in SPLITS]
        return text_files([self.path])

    def flags(self) -> list[str]:
        """The arguments of ``alibi-fairseq prepare CORPUS`` that name the source."""
        path = str(self.path)
        other = ["--allow-other-text"] if self.other else []
        if self.corpus == wikitext103.CORPUS:
            return ["--from-dir" if self.path.is_dir() else "--archive", path, *other]
        return [path, *(other if self.corpus == bookcorpus.CORPUS else [])]


def sources_of(
    paths: dict[str, Path], needed: list[str], other: bool, complete: bool
) -> dict[str, Source]:
    """The texts of corpora by corpus.

    Args:
        paths: of the texts that were given.
        needed: corpora of the runs.
        other: text that is not the paper's is allowed.
        complete: every needed corpus must be given; otherwise its name stands for its path.
    """
    if complete and (missing := [name for name in needed if name not in paths]):
        flags = " ".join(f"--corpus {name}=PATH" for name in missing)
        raise BadInput(
            f"The text of {' and '.join(missing)} is needed; give it with {flags} "
            f"(data-prep/{missing[0]}/README.md says how to get it)."
        )
    return {
        name: Source(name, paths.get(name, Path(name.upper())), other and name in paths)
        for name in needed
    }


def check_source(source: Source) -> None:
    """Check a text as its preparation will."""
    path, corpus = source.path, source.corpus
    if corpus == wikitext103.CORPUS:
        archive, folder = (None, path) if path.is_dir() else (path, None)
        wikitext103.WikiText103(archive, folder, allow_other_text=source.other).settings()
        return
    size, what = text_bytes(text_files([path])), ""
    if corpus == bookcorpus.CORPUS and not is_line_edition([path]):
        what = "one file per book: the Toronto BookCorpus has one sentence per line"
    elif corpus == cc100_roberta.CORPUS and not cc100_roberta.is_of_that_size(size):
        what = f"less text than the paper's {cc100_roberta.PAPER_BYTES / 1e9:.0f} GB"
    if what and not source.other:
        allow = "--allow-other-text accepts it under its own name"
        raise BadInput(f"--corpus {corpus}={path}: {what}; {allow}.")


@dataclass(frozen=True)
class Data:
    """The data folder that fairseq reads: prepared from a text, and at a small scale cut.

    Attributes:
        folder: the working folder of the preparation.
    """

    folder: Path
    source: Source
    scale: Scale

    @property
    def data_bin(self) -> Path:
        return self.folder / "data-bin"

    @property
    def excerpt(self) -> Path:
        """The folder of the excerpt; its name is the text's name in all results."""
        return self.folder / f"{self.source.text}-{self.scale.name}"

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
        if not manifest and self.source.corpus == "cc100-roberta":
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
        """The name of the text in results."""
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
        words = ["prepare", self.source.corpus, *self.source.flags(), "--out", str(self.folder)]
        flags = self._flags
        prepare = Command(f"preparing {self.source.text}", [*ALIBI, *words, *flags])
        if not self.scale.excerpt:
            return [prepare]
        first, *_ = manifests.data_argument(self.data_bin, self.manifest).split(":")
        argv = [sys.executable, "-m", "alibi_fairseq.data.excerpt", first, str(self.excerpt)]
        argv += [f"{split}={most}" for split, most in self.scale.excerpt.items()]
        argv += ["--words", str(self.scale.vocabulary)]
        return [prepare, Command(f"taking an excerpt of {self.source.text}", argv)]

    def check(self) -> float:
        """Check that the data can be made; returns the bytes of disk that this takes at its peak."""
        if self._prepared.holds():
            return 0
        check_source(self.source)
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
            identified = self.scale.excerpt or self.manifest["identified_by"]
            if not identified and not self.source.other:
                raise BadInput(
                    f"{self.source.path} turned out not to be the paper's {self.source.corpus}; "
                    "--allow-other-text accepts it under its own name."
                )
            self._prepared.write()
        if self.scale.excerpt and not self._cut.holds():
            self.commands()[1].run()
            self._cut.write()

    @property
    def disk_needed(self) -> float:
        """Bytes that the preparation takes at its peak, about."""
        files = self.source.files if self.source.path.exists() else []
        return KINDS[self.source.corpus].disk_needed(files, sum(self.scale.excerpt.values()))

    @property
    def _flags(self) -> list[str]:
        """Of the preparation; at a small scale it reads only the beginning of the text.

        That holds at least the tokens that the excerpt keeps.
        """
        flags = self.scale.preparation(self.source.corpus)
        if self.scale.excerpt:
            flags = [*flags, "--excerpt", str(sum(self.scale.excerpt.values()))]
        return flags

    @property
    def _prepared(self) -> Stamp:
        flags, source = self._flags, self.source
        return Stamp(
            self.folder / "prepared.json",
            {"corpus": source.corpus, "flags": flags, "other": source.other},
            source.files if source.path.exists() else [],
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
