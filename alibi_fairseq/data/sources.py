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

from ..errors import UserInputError
from ..files import open_input, sha256_file

# Suffix → how it is opened and how it begins.
_COMPRESSED: dict[str, tuple[Callable, bytes]] = {
    ".gz": (gzip.open, b"\x1f\x8b"),
    ".xz": (lzma.open, b"\xfd7zXZ\0"),
    ".bz2": (bz2.open, b"BZh"),
}
_ARCHIVES = (".tar", ".tgz", ".txz", ".zip", *(f".tar{suffix}" for suffix in _COMPRESSED))
# Text bytes per byte of a compressed English file, rounded up; for disk checks and progress only.
_EXPANSION = 5


def is_archive(path: str | os.PathLike) -> bool:
    """Whether the name is that of an archive of several files."""
    return str(path).lower().endswith(_ARCHIVES)


def text_files(
    sources: Iterable[str | os.PathLike], endings: tuple[str, ...] = (".txt",)
) -> list[Path]:
    """The files, and those below the folders with these endings, compressed or not, sorted."""
    suffixes = tuple(end + packed for end in endings for packed in ("", *_COMPRESSED))
    files = []
    for path in map(Path, sources):
        if not path.exists():
            raise UserInputError(f"{path}: there is no such file or folder.")
        below = [p for p in path.rglob("*") if p.is_file() and p.name.lower().endswith(suffixes)]
        if path.is_dir() and not below:
            raise UserInputError(f"{path}: no files *{', *'.join(suffixes)} in this folder.")
        files += sorted(below) if path.is_dir() else [path]
    return files


def text_bytes(files: Iterable[Path]) -> int:
    """Bytes of the text in files: exact for plain text, an estimate for packed files."""
    packed = (*_ARCHIVES, *_COMPRESSED)
    return sum(
        file.stat().st_size * (_EXPANSION if file.name.lower().endswith(packed) else 1)
        for file in files
    )


def texts(path: Path, ending: str = ".txt") -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each text in a file: the members of an archive that end so, or itself.

    A stream has to be read before the next one is asked for.

    Raises:
        UserInputError: the file is damaged.
    """
    with open_input(path) as raw, naming(path):
        if not is_archive(path):
            packed = _COMPRESSED.get(path.suffix.lower())
            yield path.name, _stream(path, packed[0](raw) if packed else raw)
            return
        begin = raw.peek(8)
        if begin.startswith(b"PK"):
            with zipfile.ZipFile(raw) as archive:
                for name in archive.namelist():
                    if name.lower().endswith(ending):
                        with archive.open(name) as text:
                            yield name, _stream(path, text)
            return
        # Unpacked by the libraries for each format: tarfile's own reader ignores gzip's checksum.
        # By the content: names such as .tgz and .tar do not always tell the format.
        unpack = (unpack for unpack, magic in _COMPRESSED.values() if begin.startswith(magic))
        unpacked = next(unpack, lambda stream: stream)(raw)
        # "r|" reads once from front to back, without seeking or unpacking to disk.
        with tarfile.open(fileobj=unpacked, mode="r|") as tar:
            for member in tar:
                content = tar.extractfile(member) if member.isfile() else None
                if content and member.name.lower().endswith(ending):
                    yield member.name, _stream(path, content)
        while unpacked.read(1 << 20):  # the archive ends before the checksum of what was packed
            pass


class _NamedReader(io.RawIOBase):
    """A stream whose errors name the file."""

    def __init__(self, path: Path, stream: IO[bytes]):
        self._path = path
        self._stream: Any = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        with naming(self._path):
            return self._stream.readinto(buffer)


def _stream(path: Path, stream: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_NamedReader(path, stream), 1 << 20)


@contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Name the file in whatever is raised for one that is damaged or no text; there is no common type."""
    try:
        yield
    except UserInputError:
        raise
    except Exception as error:
        # bz2 raises a bare OSError; one from the disk has a number. EINVAL: sought before the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise UserInputError(
            f"{path}: the file is damaged, cut off or not UTF-8 text ({error}); convert other "
            "encodings, e.g. with: iconv -f LATIN1 -t UTF-8."
        ) from error


def file_list_digest(files: list[Path]) -> str:
    """A short name for a list of files, from only their names and sizes."""
    listing = "\n".join(f"{file.name} {file.stat().st_size}" for file in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def describe_files(files: list[Path]) -> list[dict]:
    """The manifest's entries for the files that a text was made from."""
    return [
        {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in files
    ]


def shuffle_key(seed: int, content: object) -> bytes:
    """A sort key that depends only on the seed and the contents, or their hash."""
    return hashlib.sha256(f"{seed} {content}".encode()).digest()


def single_spaced(line: str) -> str:
    """The line with every run of white space, of any kind, as one space and none at its ends."""
    return " ".join(line.split())
