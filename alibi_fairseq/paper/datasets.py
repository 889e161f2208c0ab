"""Texts given for the paper's corpora, and binary data prepared from them.

At a small scale the data is an excerpt.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..completion_marker import CompletionMarker
from ..data import bookcorpus, cc100_roberta, wikitext103
from ..data.corpus_builder import CorpusBuilder
from ..data.pipeline import prepare_corpus
from ..data.sources import text_bytes
from ..data.truncation import first_lines, load_lines, write_excerpt
from ..errors import UserInputError
from ..machine import cores
from ..results import manifest as manifests
from ..results.data_folder import DataFolder
from .scale import Scale

#: Preparation of each corpus, and the unit in which it reads a text. Folders of other texts are
#: named after it.
PREPARATIONS: dict[str, tuple[type[CorpusBuilder], str]] = {
    wikitext103.CORPUS: (wikitext103.WikiText103, "words"),
    bookcorpus.CORPUS: (bookcorpus.BookCorpus, "books"),
    cc100_roberta.CORPUS: (cc100_roberta.Cc100Roberta, "documents"),
}
#: End of the error messages that reject a text other than the paper's.
ALLOW = "To accept it under its own name, pass --allow-other-text."


@dataclass(frozen=True)
class PaperDataset:
    """Binary data for one corpus of the paper, prepared from a text.

    Runs at a small scale use an excerpt of the prepared data.

    Attributes:
        root: folder of the datasets of all corpora.
        corpus: corpus of the paper.
        path: file or folder of the text. A dry run does not need it to exist.
        allow_other_text: True if a text other than the paper's is allowed.
        scale: scale, which determines the excerpt.
    """

    root: Path
    corpus: str
    path: Path
    allow_other_text: bool
    scale: Scale

    @property
    def name(self) -> str:
        """Name of the text. It is the corpus's name only if no other text is allowed."""
        if self.allow_other_text:
            return manifests.other_name(self.path)
        return self.corpus

    @property
    def folder(self) -> Path:
        """Working folder of the preparation. Folders of runs and results have the same name."""
        if self.allow_other_text:
            _, unit = PREPARATIONS[self.corpus]
            return self.root / f"{self.name}-as-{unit}"
        return self.root / self.name

    @property
    def data_bin(self) -> Path:
        """Folder of the prepared text."""
        return self.folder / "data-bin"

    @property
    def excerpt_folder(self) -> Path:
        """Folder of the excerpt. Results name the text after this folder."""
        return self.folder / f"{self.name}-{self.scale.name}"

    @property
    def manifest(self) -> dict:
        """Manifest of the prepared text; empty before the preparation."""
        if not self.data_bin.is_dir():
            return {}
        return DataFolder.open(self.data_bin).manifest or {}

    @property
    def data_argument(self) -> str:
        """Data argument of fairseq. Before the preparation, the number of shards is unknown."""
        if self.scale.excerpt:
            return str(self.excerpt_folder)
        manifest = self.manifest
        if not manifest and self.corpus == cc100_roberta.CORPUS:
            manifest = {"shards": ["shard00", "…"]}
        return manifests.data_argument(self.data_bin, manifest)

    @property
    def prepared(self) -> bool:
        """True if the data is prepared, and the excerpt is cut if the scale has one."""
        if self.scale.excerpt:
            return self._excerpt_marker.holds()
        return bool(self.manifest)

    @property
    def is_paper_corpus(self) -> bool:
        """True if the data is the whole corpus of the paper. Requires prepared data."""
        return not self.scale.excerpt and self.manifest["identified_by"] is not None

    @property
    def name_in_results(self) -> str:
        """Name of the text in results files. Requires prepared data."""
        if self.scale.excerpt:
            return self.excerpt_folder.name
        return self.manifest["corpus"]

    @property
    def identity(self) -> dict:
        """Settings that identify the data."""
        files = self.manifest.get("files")
        data_sha256 = None
        if files is not None:
            listing = json.dumps(files, sort_keys=True)
            data_sha256 = hashlib.sha256(listing.encode()).hexdigest()
        return {
            "data_sha256": data_sha256,
            "excerpt": self.scale.excerpt,
            "vocabulary": self.scale.vocabulary,
        }

    @property
    def _options(self) -> dict[str, Any]:
        """Options of the preparation.

        With an excerpt, the preparation reads only the beginning of the text, with at least as many
        tokens as the excerpt.
        """
        options: dict[str, Any] = {}
        if self.corpus != wikitext103.CORPUS:
            options["sources"] = [self.path]
        elif self.path.is_dir():
            options["from_folder"] = self.path
        else:
            options["archive"] = self.path
        if self.allow_other_text and self.corpus != cc100_roberta.CORPUS:
            options["allow_other_text"] = True
        options.update(self.scale.prepare.get(self.corpus, {}))
        if self.scale.excerpt:
            options["excerpt"] = sum(self.scale.excerpt.values())
        return options

    @cached_property
    def _builder(self) -> CorpusBuilder:
        """Preparation of the text."""
        builder, _ = PREPARATIONS[self.corpus]
        return builder(**self._options)

    @property
    def preparation_command(self) -> str:
        """Command line that prepares the text in the same way."""
        words = ["python", "-m", "alibi_fairseq", "prepare", self.corpus]
        for option, value in self._options.items():
            flag = "--" + option.replace("_", "-")
            if option == "sources":  # positional arguments
                words += [str(source) for source in value]
            elif value is True:
                words.append(flag)
            else:
                words += [flag, str(value)]
        return shlex.join([*words, "--out", str(self.folder)])

    def check(self) -> None:
        """Check that the text can be the paper's, as far as is known before the preparation.

        Raises:
            UserInputError: the text is another one, and no other text is allowed.
        """
        if self.allow_other_text:
            return
        problem = ""
        if self.corpus == bookcorpus.CORPUS and not bookcorpus.is_line_edition([self.path]):
            problem = "one file per book: the Toronto BookCorpus has one sentence per line"
        # Every corpus is measured, because this raises an error if a file is missing.
        size = text_bytes(self._builder.files)
        if self.corpus == cc100_roberta.CORPUS and not cc100_roberta.has_paper_size(size):
            problem = f"less text than the paper's {cc100_roberta.PAPER_BYTES / 1e9:.0f} GB"
        if problem:
            raise UserInputError(f"--corpus {self.corpus}={self.path}: {problem}. {ALLOW}")

    def prepare(self) -> None:
        """Prepare the text and cut the excerpt. Completed steps are skipped.

        Raises:
            UserInputError: the text is another one, and no other text is allowed, or as
                :func:`.prepare_corpus`.
        """
        prepare_corpus(self._builder, self.folder, cores())
        must_be_paper_corpus = not self.allow_other_text and not self.scale.excerpt
        if must_be_paper_corpus and not self.is_paper_corpus:
            raise UserInputError(f"{self.path} is not the paper's {self.corpus} after all. {ALLOW}")
        if self.scale.excerpt and not self._excerpt_marker.holds():
            self._cut_excerpt()
            self._excerpt_marker.write()

    def _cut_excerpt(self) -> None:
        """Write the start of each split of the prepared text, or of its first shard."""
        source = self.data_bin
        shards = self.manifest.get("shards")
        if shards:
            source = source / shards[0]
        excerpt = {}
        for split, lines in load_lines(source, self.scale.excerpt).items():
            excerpt[split] = first_lines(lines, self.scale.excerpt[split])
        write_excerpt(source, self.excerpt_folder, excerpt, self.scale.vocabulary)

    @property
    def _excerpt_marker(self) -> CompletionMarker:
        return CompletionMarker(
            self.folder / f"{self.excerpt_folder.name}.json",
            settings={"tokens": self.scale.excerpt, "words": self.scale.vocabulary},
            sources=[self.data_bin / manifests.FILE_NAME],
            outputs=[self.excerpt_folder / name for name in ("train.bin", "valid.bin", "dict.txt")],
        )
