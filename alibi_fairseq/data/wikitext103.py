"""WikiText-103 as in the paper: words, one ``</s>`` per line, and all words in the dictionary.

See data-prep/wikitext-103/README.md.
"""

from __future__ import annotations

import os
import re
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
from ..files import atomic_write, sha256_file, sha256_files
from ..options import option
from ..results.manifest import other_name
from .corpus_builder import SPLITS, CorpusBuilder
from .iterables import take_until
from .sources import describe_files, errors_naming, open_texts
from .tokenization import Words

CORPUS = "wikitext-103"
#: Archive on the site of the corpus's first author. The address in fairseq's script is gone.
URL = "https://wikitext.smerity.com/wikitext-103-v1.zip"
ZIP_SHA256 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
#: Lines of each split.
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
#: Tokens of each split, with one ``</s>`` per line.
TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}
#: Dictionary entries.
DICTIONARY = 267_744
#: Pattern that matches at the title of an article: " = Title = ". A section has more marks:
#: " = = Section = = ". The match is empty, so a split at it keeps the title.
#: Lines may end with CR LF.
ARTICLE_START = re.compile(rb"(?=^ ?= (?!= ).* = ?\r?$)", re.MULTILINE)
#: End of error messages about other text.
_NOT_WIKITEXT = (
    "this is not WikiText-103. Pass --allow-other-text to prepare it under a different name."
)
#: End of error messages about WikiText-103 in another format.
_CONVERT = "data-prep/wikitext-103/README.md shows how to write it to the three files."


@dataclass
class WikiText103(CorpusBuilder):
    """WikiText-103, or another text in the same layout."""

    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "WikiText-103 in words"
    download_bytes: ClassVar[float] = 545_000_000  # about
    disk: ClassVar[float] = 2.5

    archive: str | os.PathLike | None = option(
        "wikitext-103-v1.zip (default: it is downloaded)", None, metavar="FILE"
    )
    from_folder: str | os.PathLike | None = option(
        "folder with wiki.{train,valid,test}.tokens", None, metavar="FOLDER"
    )
    allow_other_text: bool = option(
        "accept a different text in the same layout; the manifest then has a different name",
        False,
    )

    @cached_property
    def files(self) -> list[Path]:
        if self.from_folder is not None:
            return list(_split_files(Path(self.from_folder)).values())
        if self.archive is not None:
            return [Path(self.archive)]
        return []

    @cached_property
    def _sha256(self) -> str:
        """SHA-256 of the concatenated files."""
        return sha256_files(self.files)

    @property
    def _is_official(self) -> bool:
        """True if the archive is the official one, downloaded or not."""
        return not self.files or self._sha256 == ZIP_SHA256

    def settings(self) -> dict:
        if self.archive is not None and not self._is_official and not self.allow_other_text:
            raise UserInputError(
                f"--archive {self.archive}: SHA-256 is {self._sha256}, expected {ZIP_SHA256}. Of "
                "WikiText-103 in another archive, extract the three files and pass --from-folder. "
                f"If it is in .parquet, {_CONVERT} --allow-other-text prepares other text under a "
                "different name."
            )
        settings: dict = {"source": "official" if self._is_official else self._sha256}
        if self.from_folder is not None:
            # The hash of all files together does not show where each of them ends.
            settings["files"] = [sha256_file(file) for file in self.files]
        return settings

    def split_files(self, work: Path) -> dict[str, Path]:
        paths = self._whole_texts(work)
        if self.excerpt:
            paths["train"] = work / "train.txt"
        return paths

    def _whole_texts(self, work: Path) -> dict[str, Path]:
        """Return the file with the whole text of each split. An excerpt's is another file."""
        return _split_files(Path(self.from_folder or work / "text"))

    def write_normalized_text(self, work: Path, workers: int) -> dict:
        source = Path(self.from_folder or self.archive or download(work))
        if not self.from_folder:
            _extract(source, work / "text")
        paths = self._whole_texts(work)
        counts = {split: count_words(path) for split, path in paths.items()}
        entries = write_dictionary(paths["train"], work / "dict.txt")
        differences = differences_from_wikitext(counts, entries)
        if not self.allow_other_text:
            _check_lines(counts)
        if differences and not self.allow_other_text:
            raise UserInputError(f"{differences[0]}: {_NOT_WIKITEXT}")
        is_genuine = not differences and not self.excerpt
        sources = self._describe_sources(source, paths, is_genuine)
        if self.excerpt:
            # After the dictionary, since an excerpt has the dictionary of the whole text.
            beginning = self.split_files(work)["train"]
            _write_beginning(paths["train"], beginning, self.excerpt)
            counts["train"] = count_words(beginning)
        if differences:
            # The dictionary of WikiText-103 has the words of all of its splits.
            known = set(self.build_tokenizer(work).names)
            for split, path in self.split_files(work).items():
                counts[split]["unknown"] = count_unknown_words(path, known)
        identified_by = None
        if is_genuine:
            identified_by = "lines, tokens and dictionary size"
            if self._is_official:
                identified_by = f"archive hash, {identified_by}"
        return {
            "corpus": CORPUS if is_genuine else other_name(source),
            "identified_by": identified_by,
            "splits": counts,
            "tokenizer": {"kind": "words"},
            "sources": sources,
        }

    def _describe_sources(
        self, source: Path, paths: dict[str, Path], is_genuine: bool
    ) -> list[dict]:
        """Return the manifest's entries for the archive, if there is one, and its three files."""
        described = describe_files(list(paths.values()))
        if self.from_folder:
            return described
        archive = describe_files([source])[0]
        if not is_genuine:
            # Another text may come in an archive that has the name of WikiText-103.
            archive["name"] = other_name(source) + source.suffix
        if not self.files:
            archive["url"] = URL
        return [archive, *described]

    def build_tokenizer(self, work: Path) -> Words:
        return Words(work / "dict.txt")


def _write_beginning(train: Path, beginning: Path, tokens: int) -> None:
    """Write the first lines of a text, until they have ``tokens`` tokens."""

    def num_tokens(line: str) -> int:
        return len(line.split()) + 1  # with </s>

    with open(train, encoding="utf-8") as lines, atomic_write(beginning) as out:
        out.writelines(take_until(lines, tokens, num_tokens))


def download(folder: Path) -> Path:
    """Download the archive; it appears under its name only if its hash matches."""
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


def write_dictionary(train: Path, path: Path) -> int:
    """Write the dictionary of a text as fairseq-preprocess does; return its number of entries."""
    from fairseq.data import Dictionary

    counts: Counter[str] = Counter()
    with open(train, encoding="utf-8") as lines:
        for line in lines:
            counts.update(line.split())
    dictionary = Dictionary()
    for word, count in counts.items():
        dictionary.add_symbol(word, count)
    dictionary.finalize()
    dictionary.save(str(path))
    return len(dictionary)


def differences_from_wikitext(counts: dict[str, dict], entries: int) -> list[str]:
    """Compare the sizes of a text with WikiText-103; return a clause per difference.

    Args:
        counts: counts of each split, see :func:`count_words`.
        entries: number of dictionary entries.
    """
    differences = []
    for split in SPLITS:
        for unit, expected in (("lines", LINES[split]), ("tokens", TOKENS[split])):
            count = counts[split][unit]
            if count != expected:
                differences.append(
                    f"wiki.{split}.tokens has {count:,} {unit}, expected {expected:,}"
                )
    if entries != DICTIONARY:
        differences.append(f"The dictionary has {entries:,} entries, expected {DICTIONARY:,}")
    return differences


def _check_lines(counts: dict[str, dict]) -> None:
    """Check that a split with the number of words of WikiText-103 also has its lines.

    Rows exported from Hugging Face lose their empty lines if they are joined without line ends.

    Raises:
        UserInputError: only the lines differ.
    """
    for split in SPLITS:
        lines = counts[split]["lines"]
        has_all_words = counts[split]["words"] == TOKENS[split] - LINES[split]
        if has_all_words and lines != LINES[split]:
            raise UserInputError(
                f"wiki.{split}.tokens has the words of WikiText-103 in {lines:,} lines, expected "
                f"{LINES[split]:,}. Write each row of an export as one line, also the empty ones: "
                f"{_CONVERT}"
            )


def _split_files(folder: Path) -> dict[str, Path]:
    """Return the file of each split; raise UserInputError if one is missing."""
    paths = {split: folder / f"wiki.{split}.tokens" for split in SPLITS}
    for path in paths.values():
        if not path.is_file():
            raise UserInputError(
                f"{path} is missing. If you have WikiText-103 in .parquet, {_CONVERT} The -raw "
                "edition, *.raw, is a different corpus."
            )
    return paths


def _extract(archive: Path, folder: Path) -> None:
    """Extract the files of the three splits, in whatever folder of the archive they are."""
    folder.mkdir(exist_ok=True)
    names = {f"wiki.{split}.tokens" for split in SPLITS}
    for member, stream in open_texts(archive, ".tokens"):
        name = Path(member).name
        if name in names:
            with open(folder / name, "wb") as out:
                shutil.copyfileobj(stream, out, 1 << 20)


def count_words(path: Path) -> dict:
    """Return ``lines``, ``words``, ``bytes``, and ``tokens`` of a file with one ``</s>`` per line.

    A line end is one byte, also if it is CR LF.

    Raises:
        UserInputError: the file is not UTF-8.
    """
    lines = 0
    words = 0
    size = 0
    # Universal newlines, as fairseq-preprocess reads.
    with errors_naming(path), open(path, encoding="utf-8") as stream:
        for line in stream:
            lines += 1
            words += len(line.split())
            size += len(line.encode())
    return {"lines": lines, "words": words, "bytes": size, "tokens": words + lines}


def count_unknown_words(path: Path, known: set[str]) -> int:
    """Return the number of words in a file that are not known.

    The special symbols of fairseq are known, so an ``<unk>`` in the text is not counted.
    """
    unknown = 0
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            unknown += sum(word not in known for word in line.split())
    return unknown
