"""``manifest.json``: contents and origin of a folder of binary data.

docs/results.md describes the format. The file is next to ``dict.txt``. Evaluation reads the words
and bytes of each split from it, for word-level perplexity and bits per byte.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..files import atomic_write, is_plain_name, json_text, read_json, sha256_file
from .data_hashes import dictionary_sha256
from .json_types import JsonObject, parse_json
from .provenance import collect_provenance, installed_version

FILE_NAME = "manifest.json"
# Parts of names that are reserved for the paper's corpora.
_RESERVED = ("wikitext", "bookcorpus", "bookslarge", "cc100", "roberta")
_TOKENIZER_LIBRARIES = ("sentencepiece", "sacremoses", "tokenizers")


def _check_plain_name(name: str) -> str:
    if not is_plain_name(name):
        raise ValueError("must be a name, without '..' or another folder's path")
    return name


Name = Annotated[str, AfterValidator(_check_plain_name)]
Size = Annotated[int, Field(gt=0, lt=2**63)]


class Counts(JsonObject):
    """Size of a split.

    Attributes:
        lines: number of lines.
        words: number of words, separated by whitespace.
        bytes: size in UTF-8, newlines included.
        tokens: number of tokens, with the end symbol of every line.
    """

    lines: Size
    words: Size
    bytes: Size
    tokens: Size


class TokenizerInfo(JsonObject):
    """Kind of a tokenizer, and the names of its files in the data folder."""

    kind: str | None = None
    files: list[Name] = []


class File(JsonObject):
    """Size and hash of a file."""

    bytes: int
    sha256: str


class Manifest(JsonObject):
    """Keys of a manifest that other modules read.

    Attributes:
        format, version: ``alibi_fairseq/corpus`` and 1.
        corpus: a corpus of the paper, or a name from the file.
        identified_by: what identified the corpus of the paper; None for any other text.
        splits: size of each split.
        dictionary: ``entries``, with fairseq's four special symbols, and the ``sha256`` of the
            symbols in their order.
        tokenizer: ``kind``, files, and settings.
        sources: input files, with size and SHA-256 (``cc100-roberta`` has no hashes).
        settings: everything that determines the output bit for bit. ``bookcorpus`` and
            ``cc100-roberta`` identify their sources by name and size.
        provenance: where and when the data was prepared.
        files: output files, with size and SHA-256.
        shards: names of the shard folders, if any.
    """

    format: Literal["alibi_fairseq/corpus"]
    version: Literal[1]
    corpus: Name
    identified_by: str | None
    splits: dict[str, Counts]
    dictionary: dict
    tokenizer: TokenizerInfo
    sources: list[dict]
    settings: dict
    provenance: dict
    files: dict[str, File] = {}
    shards: list[Name] = []


def read_manifest(path: Path) -> dict:
    """Read and validate a manifest.

    Raises:
        UserInputError: the file is corrupted or has a version that this release does not know.
    """
    manifest = read_json(path)
    parse_json(Manifest, manifest, str(path))
    return manifest


def save(manifest: dict, folder: str | os.PathLike) -> None:
    """Write a manifest made by :func:`describe` into a folder."""
    path = Path(folder) / FILE_NAME
    parse_json(Manifest, manifest, str(path))
    with atomic_write(path) as stream:
        stream.write(json_text(manifest))


def data_argument(data_bin: str | os.PathLike, manifest: dict) -> str:
    """Return fairseq's data argument: the folder, or its shards joined by ``:``."""
    if "shards" not in manifest:
        return str(Path(data_bin))
    return ":".join(str(Path(data_bin) / name) for name in manifest["shards"])


def other_name(source: str | os.PathLike) -> str:
    """Return the corpus name of a text that is not one of the paper's corpora.

    It is the name of the file without its suffixes, or ``other-text`` if that name is empty or
    could be mistaken for one of the paper's corpora.
    """
    name = Path(source).name.split(".")[0]
    letters = re.sub("[^a-z0-9]", "", name.lower())
    if not name or any(word in letters for word in _RESERVED):
        return "other-text"
    return name


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
        data_bin: the folder.
        corpus: name of a corpus of the paper, or :func:`other_name`.
        identified_by: evidence that the text is that corpus of the paper; None for another text.
        splits: at least ``lines``, ``words``, ``bytes``, and ``tokens`` of each split.
        tokenizer: at least ``kind``.
        sources: description of each source of the text, with ``bytes`` and ``sha256`` if known.
        settings: JSON values that determine the output. Equal settings give the same bytes.
        seconds: duration of the preparation.
        seed: random seed of the split.
        more: other entries, such as ``throughput``.
    """
    folder = Path(data_bin)
    dictionary = min(folder.rglob("dict.txt"))  # of the first shard; the others have copies
    lines = dictionary.read_text(encoding="utf-8").rstrip("\n").split("\n")
    special = 4  # fairseq's <s>, <pad>, </s>, and <unk>
    return {
        "format": "alibi_fairseq/corpus",
        "version": 1,
        "corpus": corpus,
        "identified_by": identified_by,
        "splits": splits,
        "dictionary": {
            "entries": len(lines) + special,
            "sha256": dictionary_sha256(dictionary),
        },
        "tokenizer": tokenizer,
        "sources": sources,
        "settings": settings,
        "files": _describe_files(folder),
        "provenance": _preparation_provenance(seconds, seed),
        **more,
    }


def _describe_files(folder: Path) -> dict[str, dict]:
    """Return size and hash of every file in a folder, by path."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": sha256_file(path)}
    return files


def _preparation_provenance(seconds: float, seed: int | None) -> dict:
    """Return the provenance of a preparation, with the versions of the tokenizers' libraries."""
    provenance = collect_provenance(seconds=seconds, precision=None, seed=seed)
    # The command line has paths of this machine, and may name a corpus of the paper although the
    # text is another one. The hashes are in ``files`` and ``dictionary``.
    for key in ("command", "data_sha256", "dictionary_sha256", "precision"):
        del provenance[key]
    for library in _TOKENIZER_LIBRARIES:
        provenance["versions"][library] = installed_version(library)
    return provenance
