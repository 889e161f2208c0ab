"""The texts given for the paper's corpora, and the data made of them: prepared, and at a small scale cut."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..data import bookcorpus, cc100_roberta, wikitext103
from ..data.bookcorpus import is_line_edition
from ..data.pipeline import SPLITS, Corpus
from ..data.sources import estimated_text_bytes, text_files
from ..errors import BadInput
from ..paper.scales import Scale
from ..results import manifest as manifests
from ..results.manifest import other_name
from ..results.stamps import Stamp
from .command import Command
from .run import ALIBI
from .runner import Step

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
        return text_files(self.path)

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

    Raises:
        BadInput: a corpus is missing.
    """
    missing = [name for name in needed if name not in paths]
    if missing and complete:
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
    """Check a text as its preparation will.

    Raises:
        BadInput: it cannot be prepared, or is not the paper's corpus and no other text is allowed.
    """
    path = source.path
    if source.corpus == wikitext103.CORPUS:
        archive, folder = (None, path) if path.is_dir() else (path, None)
        wikitext103.WikiText103(archive, folder, allow_other_text=source.other).settings()
        return
    files = text_files(path)
    if source.other:
        return
    if source.corpus == bookcorpus.CORPUS and not is_line_edition([path]):
        what = "one file per book: the Toronto BookCorpus has one sentence per line"
    elif source.corpus == cc100_roberta.CORPUS and not cc100_roberta.is_of_that_size(
        estimated_text_bytes(files)
    ):
        what = f"less text than the paper's {cc100_roberta.PAPER_BYTES / 1e9:.0f} GB"
    else:
        return
    raise BadInput(
        f"--corpus {source.corpus}={path}: {what}; --allow-other-text accepts it under its "
        "own name."
    )


@dataclass(frozen=True)
class Data:
    """The data folder that fairseq reads.

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
    def argument(self) -> str:
        """fairseq's data argument; before the preparation as far as it is known."""
        if self.scale.excerpt:
            return str(self.excerpt)
        manifest = self._manifest()
        if not manifest and self.source.corpus == "cc100-roberta":
            manifest = {"shards": ["shard00", "…"]}
        return manifests.data_argument(self.data_bin, manifest)

    @property
    def prepared(self) -> bool:
        return all(step.done() for step in self.steps())

    @property
    def genuine(self) -> bool:
        """Whether it is the whole of the paper's corpus; call it after the preparation."""
        return not self.scale.excerpt and self._manifest()["identified_by"] is not None

    @property
    def text(self) -> str:
        """The name of the text in results."""
        return self.excerpt.name if self.scale.excerpt else self._manifest()["corpus"]

    @property
    def identity(self) -> dict:
        """Settings that identify the data."""
        files = self._manifest().get("files")
        listing = json.dumps(files, sort_keys=True)
        return {
            "data_sha256": files and hashlib.sha256(listing.encode()).hexdigest(),
            "excerpt": self.scale.excerpt,
            "vocabulary": self.scale.vocabulary,
        }

    @property
    def disk_needed(self) -> float:
        """Bytes that the preparation takes at its peak, about."""
        files = self.source.files if self.source.path.exists() else []
        return KINDS[self.source.corpus].disk_needed(files, sum(self.scale.excerpt.values()))

    def steps(self) -> Iterator[Step]:
        """The steps that create the data; the second is known only after the first.

        At a small scale, only the beginning of the text is tokenised, which holds at least the
        tokens that the second step keeps.
        """
        yield self._prepare()
        if self.scale.excerpt:
            yield self._cut()

    def _manifest(self) -> dict:
        return (manifests.load(self.data_bin) if self.data_bin.is_dir() else None) or {}

    def _prepare(self) -> Step:
        flags = self.scale.preparation(self.source.corpus)
        if self.scale.excerpt:
            flags = [*flags, "--excerpt", str(sum(self.scale.excerpt.values()))]
        words = ["prepare", self.source.corpus, *self.source.flags()]
        manifest = self.data_bin / manifests.FILE_NAME
        stamp = Stamp(
            self.folder / "prepared.json",
            {"corpus": self.source.corpus, "flags": flags, "other": self.source.other},
            self.source.files if self.source.path.exists() else [],
            [manifest],
        )

        def check() -> None:
            if stamp.path.is_file() and self.data_bin.is_dir() and not stamp.holds():
                raise BadInput(
                    f"{self.data_bin} was prepared from other text or with other settings; move "
                    f"{self.folder} away or choose another --work-dir."
                )

        def finish() -> None:
            identified = self.scale.excerpt or self._manifest()["identified_by"]
            if not identified and not self.source.other:
                raise BadInput(
                    f"{self.source.path} turned out not to be the paper's {self.source.corpus}; "
                    "--allow-other-text accepts it under its own name."
                )
            stamp.write()

        return Step(
            title=f"preparing {self.source.text}",
            work=Command([*ALIBI, *words, "--out", str(self.folder), *flags]),
            done=stamp.holds,
            check=check,
            finish=finish,
        )

    def _cut(self) -> Step:
        tokens, words = self.scale.excerpt, self.scale.vocabulary
        first, *_ = manifests.data_argument(self.data_bin, self._manifest() or {}).split(":")
        stamp = Stamp(
            self.folder / f"{self.excerpt.name}.json",
            {"tokens": tokens, "words": words},
            [self.data_bin / manifests.FILE_NAME],
            [self.excerpt / name for name in ("train.bin", "valid.bin", "dict.txt")],
        )
        splits = [f"{split}={most}" for split, most in tokens.items()]
        return Step(
            title=f"taking an excerpt of {self.source.text}",
            work=Command(
                [
                    *(sys.executable, "-m", "alibi_fairseq.data.excerpt"),
                    first,
                    str(self.excerpt),
                    *splits,
                    "--words",
                    str(words),
                ]
            ),
            done=stamp.holds,
            finish=stamp.write,
        )
