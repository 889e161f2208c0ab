"""Text from files, folders and archives, one stream at a time, never unpacked to disk."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from ..errors import BadInput
from ..files import sha256_file

Advance = Callable[[int], None]

# Suffix → how it is opened and how it begins.
_COMPRESSED: dict[str, tuple[Callable, bytes]] = {
    ".gz": (gzip.open, b"\x1f\x8b"),
    ".xz": (lzma.open, b"\xfd7zXZ\0"),
    ".bz2": (bz2.open, b"BZh"),
}
_ARCHIVES = (".tar", ".tgz", ".txz", ".zip", *(f".tar{suffix}" for suffix in _COMPRESSED))
# Text bytes per byte of a compressed English file, rounded up; for disk checks only.
_EXPANSION = 5


def is_archive(path: str | os.PathLike) -> bool:
    """Return whether the name is that of an archive of several files."""
    return str(path).lower().endswith(_ARCHIVES)


def is_packed(path: Path) -> bool:
    """Whether the name is that of an archive or a compressed file."""
    return is_archive(path) or path.suffix.lower() in _COMPRESSED


def text_files(path: str | os.PathLike, endings: tuple[str, ...] = (".txt",)) -> list[Path]:
    """The file itself, or the files below a folder with these endings, compressed or not; sorted."""
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise BadInput(f"{path}: there is no such file or folder.")
    suffixes = tuple(end + packed for end in endings for packed in ("", *_COMPRESSED))
    found = sorted(p for p in path.rglob("*") if p.is_file() and p.name.lower().endswith(suffixes))
    if not found:
        raise BadInput(f"{path}: no files *{', *'.join(suffixes)} in this folder.")
    return found


def size_of(files: Iterable[Path]) -> int:
    """Bytes of the files as they are."""
    return sum(file.stat().st_size for file in files)


def estimated_text_bytes(files: Iterable[Path]) -> int:
    """Bytes of the text in files, about (exact for plain text)."""
    return sum(size_of([file]) * (_EXPANSION if is_packed(file) else 1) for file in files)


def texts(path: Path, advance: Advance = lambda _: None) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each text in a file: of every ``*.txt`` of an archive, or of itself.

    A stream has to be read before the next one is asked for.

    Args:
        advance: called with the number of bytes read from the file itself.

    Raises:
        BadInput: the file is damaged.
    """
    if is_archive(path):
        yield from members(path, ".txt", advance)
        return
    with open(path, "rb") as raw:
        stream = _stream(path, raw, advance)
        if is_packed(path):
            stream = _stream(path, _COMPRESSED[path.suffix.lower()][0](stream))
        yield path.name, stream


def members(
    path: Path, ending: str, advance: Advance = lambda _: None
) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each file of an archive whose name ends so, see :func:`texts`."""
    with open(path, "rb") as raw, _naming(path):
        stream = _stream(path, raw, advance)
        begin = stream.peek(8)
        if begin.startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                for packed in archive.infolist():
                    if packed.filename.lower().endswith(ending):
                        with archive.open(packed) as text:
                            yield packed.filename, _stream(path, text)
                    advance(packed.compress_size)
            return
        # Unpacked by the libraries for each format: tarfile's own reader ignores gzip's checksum.
        # By the content: names such as .tgz and .tar do not always tell the format.
        unpack = (unpack for unpack, magic in _COMPRESSED.values() if begin.startswith(magic))
        unpacked = next(unpack, lambda stream: stream)(stream)
        # "r|" reads once from front to back, without seeking or unpacking to disk.
        with tarfile.open(fileobj=unpacked, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content and member.name.lower().endswith(ending):
                    yield member.name, _stream(path, content)
        while unpacked.read(1 << 20):  # the archive ends before the checksum of what was packed
            pass


class _Stream(io.RawIOBase):
    """A stream that tells how much is read, and whose errors name the file."""

    def __init__(self, path: Path, stream: IO[bytes], advance: Advance):
        self._path, self._advance = path, advance
        self._stream: Any = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        with _naming(self._path):
            count = self._stream.readinto(buffer)
        self._advance(count)
        return count


def _stream(path: Path, stream: IO[bytes], advance: Advance = lambda _: None) -> io.BufferedReader:
    return io.BufferedReader(_Stream(path, stream, advance), 1 << 20)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in whatever the libraries raise for a damaged one, which has no common type."""
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        # bz2 raises a bare OSError; one from the disk has a number. EINVAL: sought before the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise BadInput(f"{path}: the file is damaged or cut off ({error}).") from error


def fingerprint(files: list[Path]) -> str:
    """A short name for a list of files, from only their names and sizes."""
    listing = "\n".join(f"{file.name} {file.stat().st_size}" for file in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def describe_files(files: list[Path], hashed: bool = True) -> list[dict]:
    """The manifest's entries for the files that a text was made from."""
    return [
        {
            "name": file.name,
            "bytes": file.stat().st_size,
            **({"sha256": sha256_file(file)} if hashed else {}),
        }
        for file in files
    ]


def not_utf8(name: str | os.PathLike, error: UnicodeDecodeError) -> BadInput:
    """The error for text in another encoding."""
    return BadInput(
        f"{name} is not UTF-8 text ({error.reason}); convert it first, "
        "e.g. with: iconv -f LATIN1 -t UTF-8."
    )


def single_spaced(line: str) -> str:
    """The line with every run of white space, of any kind, as one space and none at its ends."""
    return " ".join(line.split())
