"""WikiText-103 as the paper uses it: word-level, one ``</s>`` per line, all words kept.

See data-prep/wikitext-103/README.md.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ..errors import BadInput
from ..files import atomic_write, sha256_files
from ..results.manifest import other_name
from .excerpt import beginning
from .pipeline import SPLITS, Corpus, option
from .sources import describe_files, digest, download, is_archive, not_utf8, texts
from .tokenisers import Words

CORPUS = "wikitext-103"
ZIP_SHA256 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
TAR_SHA512 = (
    "c8186919aa1840af6b734ea41abc580574ea8efe2fafda220f5d01002464d175"
    "66d84be5199b875136c9593f0e0678fb5d7c84bb2231de8b4151cb9c83fa2109"
)
# The address in fairseq's own script (s3.amazonaws.com/research.metamind.io) no longer answers.
MIRRORS = {
    # by the corpus's first author; refuses clients without a User-Agent
    "https://wikitext.smerity.com/wikitext-103-v1.zip": ZIP_SHA256,
    # the same three files in another container
    "https://dax-cdn.cdn.appdomain.cloud/dax-wikitext-103/1.0.1/wikitext-103.tar.gz": TAR_SHA512,
}
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}  # with one </s> per line
DICTIONARY = (267_744, 267_743)  # entries; the second is in published logs
_OTHER = "this is not WikiText-103; --allow-other-text prepares it under another name."


@dataclass
class WikiText103(Corpus):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "WikiText-103, word-level"
    paper_bytes: ClassVar[float] = 545_000_000  # about
    disk: ClassVar[float] = 2.5

    archive: str | os.PathLike | None = option(
        "wikitext-103-v1.zip, already here", None, metavar="FILE"
    )
    from_dir: str | os.PathLike | None = option(
        "folder with wiki.{train,valid,test}.tokens", None, metavar="FOLDER"
    )
    mirror: list[str] | None = option(
        "download wikitext-103-v1.zip from here instead (repeatable, tried in order)",
        None,
        action="append",
        metavar="URL",
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
            raise BadInput("--archive and --from-dir are two sources; give one of them.")
        if self.archive is not None and not self.files[0].is_file():
            raise BadInput(f"--archive {self.archive}: there is no such file.")
        found = sha256_files(self.files)
        self._official = (
            not self.files
            or found == ZIP_SHA256
            or (is_archive(self.files[0]) and digest(self.files[0], TAR_SHA512) == TAR_SHA512)
        )
        if self.archive is not None and not self._official and not self.allow_other_text:
            raise BadInput(
                f"--archive {self.archive}: SHA-256 is {found}, expected {ZIP_SHA256}: {_OTHER}"
            )
        return {"source": "official" if self._official else found}

    def texts(self, work: Path) -> dict[str, Path]:
        found = _tokens_files(Path(self.from_dir or work / "text"))
        return {**found, "train": work / "train.txt"} if self.excerpt else found

    def read(self, work: Path, workers: int) -> dict:
        source, origin = Path(self.from_dir or self.archive or ""), {}
        if not self.files:
            mirrors = dict.fromkeys(self.mirror or [], ZIP_SHA256) or MIRRORS
            source, url = download(mirrors, work)
            origin = {"url": url}
        if not self.from_dir:
            _extract(source, work / "text")
        whole = _tokens_files(Path(self.from_dir or work / "text"))
        counts = {split: count_words(path) for split, path in whole.items()}
        differences = _differences(counts)
        if differences and not self.allow_other_text:
            raise BadInput(f"{differences[0]}: {_OTHER}")
        entries = self._write_dictionary(whole["train"], work / "dict.txt")
        genuine = entries in DICTIONARY and not differences and not self.excerpt
        sources = describe_files(list(whole.values()))
        if self.excerpt:
            # Only now: the dictionary of an excerpt is that of the whole text.
            train = self.texts(work)["train"]
            with open(whole["train"], encoding="utf-8") as lines, atomic_write(train) as out:
                out.writelines(beginning(lines, self.excerpt, lambda line: len(line.split()) + 1))
            counts["train"] = count_words(train)
        if not self.from_dir:
            # Other text may come in an archive that bears the name of WikiText-103.
            name = source.name if genuine else other_name(source) + source.suffix
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

    def _write_dictionary(self, train: Path, path: Path) -> int:
        """Write the dictionary that fairseq-preprocess makes; returns the number of its entries."""
        from fairseq.data import Dictionary

        dictionary = Dictionary()
        with open(train, encoding="utf-8") as lines:
            for word, count in Counter(word for line in lines for word in line.split()).items():
                dictionary.add_symbol(word, count)
        dictionary.finalize()
        entries = len(dictionary)
        if entries not in DICTIONARY and not self.allow_other_text:
            raise BadInput(
                f"The dictionary has {entries:,} entries, expected {DICTIONARY[0]:,} (or "
                f"{DICTIONARY[1]:,}): {_OTHER}"
            )
        with atomic_write(path) as stream:
            dictionary.save(stream)
        return entries


def _tokens_files(folder: Path) -> dict[str, Path]:
    paths = {split: folder / f"wiki.{split}.tokens" for split in SPLITS}
    for path in paths.values():
        if not path.is_file():
            raise BadInput(
                f"{folder}: {path.name} is missing; WikiText-103 is wiki.train.tokens, "
                "wiki.valid.tokens and wiki.test.tokens (the -raw edition, *.raw, is another corpus)."
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
    try:
        # Universal newlines, as fairseq-preprocess reads.
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                lines += 1
                words += len(line.split())
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error
    if words == 0:
        raise BadInput(f"{path}: there are no words in it.")
    return {"lines": lines, "words": words, "bytes": path.stat().st_size, "tokens": words + lines}


def _differences(counts: dict[str, dict]) -> list[str]:
    expected = {"lines": LINES, "tokens": TOKENS}
    return [
        f"wiki.{split}.tokens has {found[unit]:,} {unit}, expected {expected[unit][split]:,}"
        for split, found in counts.items()
        for unit in ("lines", "tokens")
        if found[unit] != expected[unit][split]
    ]
