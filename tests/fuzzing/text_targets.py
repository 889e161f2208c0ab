"""Readers of texts, comparisons, lists of splits and options of the command line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import yaml
from fuzzing.inputs import any_file, json_file

from alibi_fairseq.cli import sweep_options
from alibi_fairseq.data import sources, splits
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments import comparison as description
from alibi_fairseq.fairseq_fixes.loading_safely import evaluate_literal

_TEXT = b"one two three\nfour\n\nfive six\n" * 20


def _tar(mode: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = len(_TEXT)
        archive.addfile(member, io.BytesIO(_TEXT))
    return stream.getvalue()


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", _TEXT)
    return stream.getvalue()


@cache
def _packed() -> list[tuple[str, bytes]]:
    return [
        ("a.txt", _TEXT),
        ("a.txt.gz", gzip.compress(_TEXT)),
        ("a.txt.xz", lzma.compress(_TEXT)),
        ("a.txt.bz2", bz2.compress(_TEXT)),
        ("a.tar", _tar("w")),
        ("a.tar.gz", _tar("w:gz")),
        ("a.tar.xz", _tar("w:xz")),
        ("a.zip", _zip()),
    ]


def texts(data: bytes, folder: Path) -> None:
    name, packed = _packed()[(data[0] if data else 0) % len(_packed())]
    path = folder / name
    path.write_bytes(any_file(data, packed))
    for _, stream in sources.texts(path):
        while stream.read(1 << 16):
            pass


_COMPARISON = (
    "corpora:\n  - {name: a, text: [x.txt]}\n  - {name: b, data: y}\nmethods: [alibi, rotary]\n"
    "train_lengths: [64, 128]\nupdates: 10\ntokens_per_update: 1024\nlr: 0.001\nseeds: 1\n"
    "train_flags: '--dropout 0'\norder: [seeds, corpora, train_lengths, methods]\n"
)


@cache
def _comparison() -> dict:
    return yaml.safe_load(_COMPARISON)


def comparison(data: bytes, folder: Path) -> None:
    path = folder / "comparison.yaml"
    path.write_bytes(json_file(data, _comparison()))
    description.load(path)


_SPLITS = b"split\tsha256\tgroup\tname\ntrain\t" + b"0" * 64 + b"\t0\ta.txt\n"


def split_list(data: bytes, folder: Path) -> None:
    path = folder / "splits.tsv"
    path.write_bytes(any_file(data, _SPLITS))
    splits.apply_list([splits.Book("a.txt", "0" * 64)], path)


_LITERALS = (b"[(512, 3)] * 4 + [1, -2.5]", b'{"attention_backend": "eager"}', b"2/3", b"512,1024")


def options_as_text(data: bytes, folder: Path) -> None:
    """Text of the command line."""
    text = any_file(data, _LITERALS[(data[0] if data else 0) % len(_LITERALS)]).decode(
        errors="replace"
    )
    readers: tuple[Callable, ...] = (
        sweep_options._overrides,
        sweep_options._shard,
        lambda text: sweep_options._number("--lengths", text),
        lambda text: sweep_options._names("--lengths", text),
        _literal,
    )
    for reader in readers:
        try:
            reader(text)
        except BadInput:
            continue


def _literal(text: str) -> None:
    try:
        evaluate_literal(text)
    except ValueError as error:  # where fairseq reads an option
        raise BadInput(str(error)) from error


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "texts": texts,
    "comparison": comparison,
    "split-list": split_list,
    "options-as-text": options_as_text,
}
VALID: dict[str, Callable[[], list[bytes]]] = {
    "texts": lambda: [packed for _, packed in _packed()],
    "comparison": lambda: [_COMPARISON.encode()],
    "split-list": lambda: [_SPLITS],
    "options-as-text": lambda: list(_LITERALS),
}
