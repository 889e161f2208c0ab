"""``manifest.json``: what a folder of binary data holds and where it comes from.

The format is described in docs/manifest.md. It lies beside ``dict.txt``; evaluation reads the
words and bytes of each split from it for word-level perplexity and bits per byte.
"""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path
from typing import Any

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write, is_plain_name, sha256_file
from alibi_fairseq.results.dictionaries import dictionary_sha256
from alibi_fairseq.results.json_files import json_text, read_json
from alibi_fairseq.results.provenance import collect_provenance

FORMAT = "alibi_fairseq/corpus"
VERSION = 1
FILE_NAME = "manifest.json"
COUNTS = ("lines", "words", "bytes", "tokens")

# Names that only the paper's corpora may bear.
_PROTECTED = ("wikitext", "bookcorpus", "bookslarge", "cc100", "roberta")
_REQUIRED = (
    *("corpus", "identified_by", "splits", "dictionary", "tokenizer"),
    *("sources", "settings", "provenance"),
)
_KINDS = {
    **{"corpus": str, "splits": dict, "dictionary": dict, "tokenizer": dict, "sources": list},
    **{"settings": dict, "provenance": dict, "files": dict, "shards": list},
}
_NAMES = {str: "text", dict: "an object", list: "a list"}
_LIBRARIES = ("sentencepiece", "sacremoses", "tokenizers")


def load(data: str | os.PathLike) -> dict | None:
    """The manifest of a data folder, None when it has none.

    Args:
        data: the folder; of several joined by ``:`` (fairseq's shards) the first counts, and a
            shard's manifest lies in the folder above it.

    Raises:
        BadInput: the file is damaged or of a version this release does not know.
    """
    first = Path(os.fspath(data).split(":")[0])
    for folder in (first, first.parent):
        path = folder / FILE_NAME
        if path.is_file():
            return _checked(path)
    return None


def save(manifest: dict, folder: str | os.PathLike) -> None:
    """Write a manifest made by :func:`describe` into a folder."""
    path = Path(folder) / FILE_NAME
    text = json_text(_validated(manifest, path))
    with atomic_write(path) as stream:
        stream.write(text)


def summary(data: str | os.PathLike) -> dict | None:
    """What tells whether two texts count alike: tokeniser, vocabulary, size of the training split.

    Returns:
        ``tokenizer``, ``vocabulary`` (entries), ``train_tokens``, ``train_bytes``; None without a
        manifest.
    """
    manifest = load(data)
    if manifest is None:
        return None
    train = manifest["splits"].get("train", {})
    return {
        "tokenizer": manifest["tokenizer"].get("kind"),
        "vocabulary": manifest["dictionary"].get("entries"),
        "train_tokens": train.get("tokens"),
        "train_bytes": train.get("bytes"),
    }


def data_argument(data_bin: str | os.PathLike, manifest: dict) -> str:
    """What to give fairseq as its data: the folder, or its shards joined by ``:``."""
    folder = Path(data_bin)
    return ":".join(str(folder / name) for name in manifest.get("shards", [""]))


def other_name(source: str | os.PathLike) -> str:
    """The corpus name of a text that is not the paper's: its file's, unless that would mislead."""
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
    """The manifest of a finished folder of binary data; hashes every file in it.

    Args:
        corpus: ``wikitext-103``, ``bookcorpus``, ``cc100-roberta``, or :func:`other_name`.
        identified_by: what shows that it is that corpus of the paper; None for other text.
        splits: split -> at least ``lines, words, bytes, tokens``.
        tokenizer: at least ``kind``.
        sources: what the text was made from, each with ``bytes`` and ``sha256`` where known.
        settings: what decides about the output; the same settings give the same bytes.
        seconds: wall-clock time of this run.
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
    provenance["versions"].update({name: _version_of(name) for name in _LIBRARIES})
    return {
        "format": FORMAT,
        "version": VERSION,
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


def _version_of(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _checked(path: Path) -> dict:
    try:
        manifest = read_json(path)
    except BadInput as error:
        raise BadInput(f"{error} It is not a readable manifest; prepare the data again.") from error
    return _validated(manifest, path)


def _validated(manifest: Any, path: Path) -> dict:
    if fault := _fault(manifest):
        raise BadInput(f"{path}: {fault}; prepare the data again.")
    return manifest


def _fault(manifest: Any) -> str | None:
    """The first thing that is wrong with a manifest."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return "not a manifest of this project"
    if manifest.get("version") != VERSION:
        version = manifest.get("version")
        return f"version {version!r} of the manifest, but this release reads version {VERSION}"
    for key in _REQUIRED:
        if key not in manifest:
            return f"{key!r} is missing"
    for key, kind in _KINDS.items():
        if key in manifest and not isinstance(manifest[key], kind):
            return f"{key} is {str(manifest[key])[:60]!r}, but must be {_NAMES[kind]}"
    entries, kind = manifest["dictionary"].get("entries"), manifest["tokenizer"].get("kind")
    if type(entries) not in (int, type(None)) or not isinstance(kind, (str, type(None))):
        return "dictionary.entries must be a number and tokenizer.kind text"
    for split, counts in manifest["splits"].items():
        for name in COUNTS:
            count = counts.get(name) if isinstance(counts, dict) else None
            if type(count) is not int or not 0 < count < 2**63:
                found = str(count)[:60]
                return f"splits.{split}.{name} is {found}, but must be a whole number above 0"
    files = manifest.get("files", {})
    for name, file in files.items():
        if not isinstance(file, dict) or not {"bytes", "sha256"} <= file.keys():
            return f"files.{name} must have 'bytes' and 'sha256'"
    for key, names in (
        ("corpus", [manifest["corpus"]]),
        ("shards", manifest.get("shards", [])),
        ("tokenizer.files", manifest["tokenizer"].get("files", [])),
        ("files", [part for name in files for part in name.split("/")]),
    ):
        if not isinstance(names, list) or not all(map(is_plain_name, names)):
            return f"{key} must be names, without '..' or another folder's path"
    return None
