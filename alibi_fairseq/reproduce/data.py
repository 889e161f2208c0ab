"""The data of a corpus: prepared, and at a small scale cut to an excerpt."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from ..results import manifest as manifests
from ..workflow import Command, Stamp, Step
from .scales import Scale
from .sources import Source

#: Running a module, and this package's command.
PYTHON = [sys.executable, "-m"]
ALIBI = [*PYTHON, "alibi_fairseq"]


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

    def steps(self) -> Iterator[Step]:
        """The steps that create the data; the second is known only after the first."""
        yield self._prepare()
        if self.scale.excerpt:
            yield self._cut()

    def _manifest(self) -> dict:
        return (manifests.load(self.data_bin) if self.data_bin.is_dir() else None) or {}

    def _prepare(self) -> Step:
        flags = self.scale.preparation(self.source.corpus)
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
            if self._manifest()["identified_by"] is None and not self.source.other:
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
                    *PYTHON,
                    "alibi_fairseq.reproduce.excerpt",
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
