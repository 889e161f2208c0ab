"""WikiText-103 as the paper uses it: word-level, one ``</s>`` per line, all words kept.

See data-prep/wikitext-103/README.md.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from alibi_fairseq.data.download import Mirror, download, hash_file
from alibi_fairseq.data.pipeline import SPLITS, Corpus, Text, Workspace, option
from alibi_fairseq.data.progress import progress
from alibi_fairseq.data.sources import count_words, describe_files, members
from alibi_fairseq.data.tokenisers import Words
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write, sha256_files
from alibi_fairseq.results.manifest import other_name

CORPUS = "wikitext-103"
ZIP_SHA256 = "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
TAR_SHA512 = (
    "c8186919aa1840af6b734ea41abc580574ea8efe2fafda220f5d01002464d175"
    "66d84be5199b875136c9593f0e0678fb5d7c84bb2231de8b4151cb9c83fa2109"
)
# The address in fairseq's own script (s3.amazonaws.com/research.metamind.io) no longer answers.
MIRRORS = [
    # by the corpus's first author; refuses clients without a User-Agent
    Mirror("https://wikitext.smerity.com/wikitext-103-v1.zip", "sha256", ZIP_SHA256),
    # the same three files in another container
    Mirror(
        "https://dax-cdn.cdn.appdomain.cloud/dax-wikitext-103/1.0.1/wikitext-103.tar.gz",
        "sha512",
        TAR_SHA512,
    ),
]
LINES = {"train": 1_801_350, "valid": 3_760, "test": 4_358}
TOKENS = {"train": 103_227_021, "valid": 217_646, "test": 245_569}  # with one </s> per line
DICTIONARY = (267_744, 267_743)  # entries; the second is in published logs
_TEXT_BYTES = 545_000_000  # about, for the disk check before a download
_OTHER = "this is not WikiText-103; --allow-other-text prepares it under another name."


@dataclass
class WikiText103(Corpus):
    name: ClassVar[str] = CORPUS
    summary: ClassVar[str] = "WikiText-103, word-level"

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
    def _identity(self) -> tuple[bool, str]:
        return identify(self.archive, self.from_dir, self.allow_other_text)

    def settings(self) -> dict:
        return {"source": self._identity[1]}

    def disk_needed(self) -> float:
        return disk_needed(self.archive, self.from_dir)

    def read(self, workspace: Workspace, workers: int) -> Text:
        archive, origin = self.archive, {}
        if archive is None and self.from_dir is None:
            urls = self.mirror or []
            mirrors = [Mirror(url, "sha256", ZIP_SHA256) for url in urls] or MIRRORS
            archive, mirror = download(mirrors, workspace.work)
            origin = {"url": mirror.url}
        source = Path(archive or self.from_dir or "")
        folder = workspace.work / "text" if archive else source
        if archive:
            workspace.step("extract", lambda: _extract(source, folder))
        splits = {split: _tokens_file(folder, split) for split in SPLITS}
        counts = workspace.step("count", lambda: self._counted(splits))
        dictionary = workspace.work / "dict.txt"
        if not dictionary.exists():
            _write_dictionary(splits["train"], dictionary, workers)
        entries = Words(dictionary).entries
        if entries not in DICTIONARY and not self.allow_other_text:
            raise BadInput(
                f"The dictionary has {entries:,} entries, expected {DICTIONARY[0]:,} (or "
                f"{DICTIONARY[1]:,}): {_OTHER}"
            )
        genuine = entries in DICTIONARY and not _differences(counts)
        hashed = "archive hash, " if self._identity[0] else ""
        sources = describe_files(list(splits.values()))
        if archive:
            # Other text may come in an archive that bears the name of WikiText-103.
            name = source.name if genuine else other_name(source) + source.suffix
            sources.insert(0, {**describe_files([source])[0], "name": name, **origin})
        return Text(
            splits,
            {
                "corpus": CORPUS if genuine else other_name(source),
                "identified_by": f"{hashed}lines, tokens and dictionary size" if genuine else None,
                "splits": counts,
                "tokenizer": {"kind": "words"},
                "sources": sources,
            },
        )

    def tokeniser(self, work: Path, text: Text) -> Words:
        return Words(work / "dict.txt")

    def _counted(self, splits: dict[str, Path]) -> dict[str, dict]:
        counts = {}
        for split, path in splits.items():
            found = counts[split] = count_words(path, f"counting {split}")
            if found["words"] == 0:
                raise BadInput(f"{path}: there are no words in it.")
            difference = _differences({split: found})
            if difference and not self.allow_other_text:
                raise BadInput(f"{path.name} has {difference[0]}: {_OTHER}")
        return counts


def identify(
    archive: str | os.PathLike | None, from_dir: str | os.PathLike | None, allow_other_text: bool
) -> tuple[bool, str]:
    """Return whether the source is an official archive by its hash, and a name for its contents.

    Raises:
        BadInput: there is no such source, or it is an archive of other text, which is not allowed.
    """
    if archive is not None and from_dir is not None:
        raise BadInput("--archive and --from-dir are two sources; give one of them.")
    if from_dir is not None:
        return False, sha256_files([_tokens_file(Path(from_dir), split) for split in SPLITS])
    if archive is None:
        return True, "official"
    path = Path(archive)
    if not path.is_file():
        raise BadInput(f"--archive {path}: there is no such file.")
    found = hash_file(path, "sha256")
    if found == ZIP_SHA256 or (
        tarfile.is_tarfile(path) and hash_file(path, "sha512") == TAR_SHA512
    ):
        return True, "official"
    if not allow_other_text:
        raise BadInput(
            f"--archive {path}: SHA-256 is {found}, expected {ZIP_SHA256}: this is not the "
            "official wikitext-103-v1.zip; --allow-other-text prepares it under another name."
        )
    return False, found


def disk_needed(archive: str | os.PathLike | None, from_dir: str | os.PathLike | None) -> float:
    """Bytes that the preparation takes at its peak, about."""
    if from_dir is not None:
        text = sum(_tokens_file(Path(from_dir), split).stat().st_size for split in SPLITS)
    elif archive is None:
        text = _TEXT_BYTES
    else:
        text = 4 * Path(archive).stat().st_size
    return 2.5 * text


def _tokens_file(folder: Path, split: str) -> Path:
    path = folder / f"wiki.{split}.tokens"
    if not path.is_file():
        raise BadInput(
            f"{folder}: {path.name} is missing; WikiText-103 is wiki.train.tokens, "
            "wiki.valid.tokens and wiki.test.tokens (the -raw edition, *.raw, is another corpus)."
        )
    return path


def _extract(archive: Path, folder: Path) -> dict:
    """The three files out of an archive, whatever the folder they lie in."""
    folder.mkdir(exist_ok=True)
    wanted = {f"wiki.{split}.tokens" for split in SPLITS}
    with progress(archive.stat().st_size, "extracting") as bar:
        for name, stream in members(archive, ".tokens", bar.update):
            if Path(name).name in wanted:
                with open(folder / Path(name).name, "wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)
    for split in SPLITS:
        _tokens_file(folder, split)
    return {}


def _differences(counts: dict[str, dict]) -> list[str]:
    expected = {"lines": LINES, "tokens": TOKENS}
    return [
        f"{found[unit]:,} {unit}, expected {expected[unit][split]:,}"
        for split, found in counts.items()
        for unit in ("lines", "tokens")
        if found[unit] != expected[unit][split]
    ]


def _write_dictionary(text: Path, dictionary: Path, workers: int) -> None:
    """The dictionary that fairseq-preprocess makes of the training text."""
    from fairseq.tasks import FairseqTask

    found = FairseqTask.build_dictionary([str(text)], workers=workers)
    with atomic_write(dictionary) as stream:
        found.save(stream)
