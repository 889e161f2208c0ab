"""WikiText-103 as the paper uses it: word-level, one ``</s>`` per line, all words kept.

See data-prep/wikitext-103/README.md.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import ClassVar

from ..errors import UserInputError
from ..files import atomic_write, sha256_files
from ..results.manifest import other_name
from .pipeline import SPLITS, CorpusBuilder, option
from .sources import describe_files, naming, texts
from .tokenization import Words
from .truncation import take_until

CORPUS = "wikitext-103"
# By the corpus's first author; the address in fairseq's own script no longer answers.
URL = "https://wikitext.smerity.com/wikitext-103-v1.zip"
ZIP_SHA256 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}  # with one </s> per line
DICTIONARY = 267_744  # entries
_OTHER = "this is not WikiText-103; --allow-other-text prepares it under another name."


@dataclass
class WikiText103(CorpusBuilder):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "WikiText-103, word-level"
    download_bytes: ClassVar[float] = 545_000_000  # about
    disk: ClassVar[float] = 2.5

    archive: str | os.PathLike | None = option(
        "wikitext-103-v1.zip, already here", None, metavar="FILE"
    )
    from_dir: str | os.PathLike | None = option(
        "folder with wiki.{train,valid,test}.tokens", None, metavar="FOLDER"
    )
    allow_other_text: bool = option(
        "accept another text in the same layout; the manifest then never says WikiText-103",
        False,
    )

    @cached_property
    def files(self) -> list[Path]:
        if self.from_dir is not None:
            return list(_tokens_files(Path(self.from_dir)).values())
        return [Path(self.archive)] if self.archive is not None else []

    def settings(self) -> dict:
        if self.archive is not None and self.from_dir is not None:
            raise UserInputError("--archive and --from-dir are two sources; give one of them.")
        found = sha256_files(self.files)
        self._official = not self.files or found == ZIP_SHA256
        if self.archive is not None and not self._official and not self.allow_other_text:
            raise UserInputError(
                f"--archive {self.archive}: SHA-256 is {found}, expected {ZIP_SHA256}: {_OTHER}"
            )
        return {"source": "official" if self._official else found}

    def texts(self, work: Path) -> dict[str, Path]:
        found = _tokens_files(Path(self.from_dir or work / "text"))
        return {**found, "train": work / "train.txt"} if self.excerpt else found

    def read(self, work: Path, workers: int) -> dict:
        from fairseq.data import Dictionary

        source = Path(self.from_dir or self.archive or download(work))
        if not self.from_dir:
            _extract(source, work / "text")
        whole = _tokens_files(Path(self.from_dir or work / "text"))
        counts = {split: count_words(path) for split, path in whole.items()}
        dictionary = Dictionary()  # as fairseq-preprocess makes it
        with open(whole["train"], encoding="utf-8") as lines:
            for word, count in Counter(word for line in lines for word in line.split()).items():
                dictionary.add_symbol(word, count)
        dictionary.finalize()
        dictionary.save(str(work / "dict.txt"))
        differences = [
            f"wiki.{split}.tokens has {counts[split][unit]:,} {unit}, expected {wanted[split]:,}"
            for split in SPLITS
            for unit, wanted in (("lines", LINES), ("tokens", TOKENS))
            if counts[split][unit] != wanted[split]
        ]
        if len(dictionary) != DICTIONARY:
            differences.append(
                f"The dictionary has {len(dictionary):,} entries, expected {DICTIONARY:,}"
            )
        if differences and not self.allow_other_text:
            raise UserInputError(f"{differences[0]}: {_OTHER}")
        genuine = not differences and not self.excerpt
        sources = describe_files(list(whole.values()))
        if self.excerpt:
            # Only now: the dictionary of an excerpt is that of the whole text.
            train = self.texts(work)["train"]
            with open(whole["train"], encoding="utf-8") as lines, atomic_write(train) as out:
                out.writelines(take_until(lines, self.excerpt, lambda line: len(line.split()) + 1))
            counts["train"] = count_words(train)
        if not self.from_dir:
            # Other text may come in an archive that bears the name of WikiText-103.
            name = source.name if genuine else other_name(source) + source.suffix
            origin = {} if self.files else {"url": URL}
            sources.insert(0, {**describe_files([source])[0], "name": name, **origin})
        hashed = "archive hash, " if self._official else ""
        return {
            "corpus": CORPUS if genuine else other_name(source),
            "identified_by": f"{hashed}lines, tokens and dictionary size" if genuine else None,
            "splits": counts,
            "tokenizer": {"kind": "words"},
            "sources": sources,
        }

    def tokeniser(self, work: Path) -> Words:
        return Words(work / "dict.txt")


def download(folder: Path) -> Path:
    """Fetch the archive; it appears under its own name only if its hash matches."""
    from torch.hub import download_url_to_file

    socket.setdefaulttimeout(60)  # seconds without a byte
    archive = folder / Path(URL).name
    try:
        if not archive.exists():
            download_url_to_file(URL, str(archive), ZIP_SHA256, progress=sys.stderr.isatty())
    except (OSError, RuntimeError, HTTPException) as error:
        raise UserInputError(
            f"{URL}: {error}. Fetch the archive elsewhere and give it with --archive FILE."
        ) from error
    return archive


def _tokens_files(folder: Path) -> dict[str, Path]:
    paths = {split: folder / f"wiki.{split}.tokens" for split in SPLITS}
    if missing := [path for path in paths.values() if not path.is_file()]:
        raise UserInputError(
            f"{missing[0]} is missing (the -raw edition, *.raw, is another corpus)."
        )
    return paths


def _extract(archive: Path, folder: Path) -> None:
    """The three files out of an archive, whatever the folder they lie in."""
    folder.mkdir(exist_ok=True)
    wanted = {f"wiki.{split}.tokens" for split in SPLITS}
    for name, stream in texts(archive, ".tokens"):
        if Path(name).name in wanted:
            with open(folder / Path(name).name, "wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)


def count_words(path: Path) -> dict:
    """``lines``, ``words``, ``bytes`` and ``tokens`` of a UTF-8 file whose every line ends with ``</s>``."""
    lines = words = 0
    # Universal newlines, as fairseq-preprocess reads.
    with naming(path), open(path, encoding="utf-8") as stream:
        for line in stream:
            lines += 1
            words += len(line.split())
    if words == 0:
        raise UserInputError(f"{path}: there are no words in it.")
    return {"lines": lines, "words": words, "bytes": path.stat().st_size, "tokens": words + lines}
