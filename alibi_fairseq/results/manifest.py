"""``manifest.json``: what a folder of binary data holds and where it comes from.

The format is described in docs/results.md. It lies beside ``dict.txt``; evaluation reads the
words and bytes of each split from it for word-level perplexity and bits per byte.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import atomic_write, is_plain_name, json_text, read_json, sha256_file
from alibi_fairseq.results.provenance import (
    collect_provenance,
    dictionary_sha256,
    version_of,
)
from alibi_fairseq.results.schema import JsonObject, check

FILE_NAME = "manifest.json"
# Names that only the paper's corpora may bear.
_PROTECTED = ("wikitext", "bookcorpus", "bookslarge", "cc100", "roberta")
_LIBRARIES = ("sentencepiece", "sacremoses", "tokenizers")


def _plain(name: str) -> str:
    if not is_plain_name(name):
        raise ValueError("must be a name, without '..' or another folder's path")
    return name


Name = Annotated[str, AfterValidator(_plain)]
Size = Annotated[int, Field(gt=0, lt=2**63)]


class Counts(JsonObject):
    lines: Size
    words: Size
    bytes: Size
    tokens: Size


class TokenizerInfo(JsonObject):
    kind: str | None = None
    files: list[Name] = []


class File(JsonObject):
    bytes: int
    sha256: str


class Manifest(JsonObject):
    """The keys of a manifest that others read."""

    format: Literal["alibi_fairseq/corpus"]
    version: Literal[1]
    corpus: Name
    identified_by: str | None
    splits: dict[str, Counts]
    dictionary: dict
    tokenizer: TokenizerInfo
    sources: list
    settings: dict
    provenance: dict
    files: dict[str, File] = {}
    shards: list[Name] = []


def read_manifest(path: Path) -> dict:
    """Read and validate a manifest.

    Raises:
        UserInputError: the file is corrupted or has a version that this release does not know.
    """
    try:
        manifest = read_json(path)
        check(Manifest, manifest, str(path))
    except UserInputError as error:
        raise UserInputError(f"{error} Prepare the data again.") from error
    return manifest


def save(manifest: dict, folder: str | os.PathLike) -> None:
    """Write a manifest made by :func:`describe` into a folder."""
    path = Path(folder) / FILE_NAME
    check(Manifest, manifest, str(path))
    with atomic_write(path) as stream:
        stream.write(json_text(manifest))


def data_argument(data_bin: str | os.PathLike, manifest: dict) -> str:
    """Return fairseq's data argument: the folder, or its shards joined by ``:``."""
    folder = Path(data_bin)
    return ":".join(str(folder / name) for name in manifest.get("shards", [""]))


def other_name(source: str | os.PathLike) -> str:
    """Return the corpus name of other text: the file's, unless that is like one of the paper's."""
    name = Path(source).name.split(".")[0]
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return "other-text" if not name or any(word in letters for word in _PROTECTED) else name


def describe(
    data_bin: str | os.PathLike,
    *,
    corpus: str,
    identified_by: str | None,
    splits: dict[str, dict],
    tokenizer: dict,
    sources: list[dict],
    settings: dict,
    seconds: float,
    seed: int | None = None,
    **more: object,
) -> dict:
    """Return the manifest of a finished folder of binary data, with a hash of every file.

    Args:
        corpus: a name of the paper's, or :func:`other_name`.
        identified_by: what shows that it is that corpus of the paper; None for other text.
        splits: split -> at least ``lines, words, bytes, tokens``.
        tokenizer: at least ``kind``.
        sources: what the text was made from, each with ``bytes`` and ``sha256`` where known.
        settings: what decides about the output; the same settings give the same bytes.
        more: further entries, e.g. ``throughput``.
    """
    folder = Path(data_bin)
    dictionaries = sorted(folder.rglob("dict.txt"))
    entries = len(dictionaries[0].read_text(encoding="utf-8").rstrip("\n").split("\n"))
    provenance = collect_provenance(seconds=seconds, precision=None, seed=seed)
    # The command line holds paths of this machine, and may name a corpus that this is not; the
    # hashes stand above, file by file.
    for key in ("command", "data_sha256", "dictionary_sha256", "precision"):
        del provenance[key]
    provenance["versions"].update({name: version_of(name) for name in _LIBRARIES})
    return {
        "format": "alibi_fairseq/corpus",
        "version": 1,
        "corpus": corpus,
        "identified_by": identified_by,
        "splits": splits,
        "dictionary": {
            "entries": entries + 4,  # with fairseq's <s>, <pad>, </s> and <unk>
            "sha256": dictionary_sha256(dictionaries[0]),
        },
        "tokenizer": tokenizer,
        "sources": sources,
        "settings": settings,
        "files": {
            path.relative_to(folder).as_posix(): {
                "bytes": path.stat().st_size,
                "sha256": sha256_file(path),
            }
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
        "provenance": provenance,
        **more,
    }
