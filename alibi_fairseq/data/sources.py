"""Text from files, folders and archives, one stream at a time, never unpacked to disk."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

from alibi_fairseq.data.progress import progress
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import sha256_file

Advance = Callable[[int], None]

_OPENERS: dict[str, Callable] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
_COMPRESSED = (*_OPENERS, ".zst")
_MAGIC = {
    ".gz": b"\x1f\x8b",
    ".xz": b"\xfd7zXZ\0",
    ".bz2": b"BZh",
    ".zst": b"\x28\xb5\x2f\xfd",
}
_ARCHIVES = (".tar", ".tgz", ".txz", ".zip", *(f".tar{suffix}" for suffix in _COMPRESSED))
# Text bytes per byte of a compressed English file, rounded up; for disk checks only.
_EXPANSION = 5
_DAMAGES = (
    *(EOFError, lzma.LZMAError, zlib.error, tarfile.TarError, zipfile.BadZipFile, struct.error),
    # What zipfile raises for numbers that cannot be, and for encrypted members.
    *(ArithmeticError, LookupError, NotImplementedError, RuntimeError, ValueError),
)


def is_archive(path: str | os.PathLike) -> bool:
    """Return whether the name is that of an archive of several files."""
    return str(path).lower().endswith(_ARCHIVES)


def is_compressed(path: str | os.PathLike) -> bool:
    """Return whether the name is that of one compressed file."""
    return Path(path).suffix.lower() in _COMPRESSED and not is_archive(path)


def text_files(path: str | os.PathLike, endings: tuple[str, ...] = (".txt",)) -> list[Path]:
    """The files below a folder (sorted), or the file itself.

    Args:
        endings: endings of the files to read in a folder; compressed ones have one more.

    Raises:
        BadInput: nothing there.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise BadInput(f"{path}: there is no such file or folder.")
    suffixes = tuple(end + packed for end in endings for packed in ("", *_COMPRESSED))
    found = sorted(p for p in path.rglob("*") if p.is_file() and p.name.lower().endswith(suffixes))
    if not found:
        raise BadInput(
            f"{path}: no text files ({', '.join(f'*{end}' for end in endings)}, "
            "also .gz, .xz, .bz2, .zst) in this folder."
        )
    return found


def estimated_text_bytes(path: Path) -> int:
    """Size of the text in a file, about (exact for plain text)."""
    packed = is_compressed(path) or is_archive(path)
    return path.stat().st_size * (_EXPANSION if packed else 1)


def texts(path: Path, advance: Advance = lambda _: None) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each text in a file: of every ``*.txt`` of an archive, or of itself.

    A stream has to be read before the next one is asked for.

    Args:
        advance: called with the number of bytes read from the file itself.

    Raises:
        BadInput: the file is damaged, or zstandard is needed and missing.
    """
    if is_archive(path):
        yield from members(path, ".txt", advance)
        return
    with open(path, "rb") as raw:
        counted = _stream(path, raw, advance)
        packing = path.suffix.lower() if is_compressed(path) else ""
        yield path.name, _stream(path, _decompress(path, counted, packing))


def members(
    path: Path, ending: str, advance: Advance = lambda _: None
) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each file of an archive whose name ends so, see :func:`texts`."""
    with open(path, "rb") as raw, _reading(path):
        counted = _stream(path, raw, advance)
        if counted.peek(4).startswith(b"PK"):
            with zipfile.ZipFile(path) as archive:
                for packed in archive.infolist():
                    if packed.filename.lower().endswith(ending):
                        with archive.open(packed) as text:
                            yield packed.filename, _stream(path, text)
                    advance(packed.compress_size)
            return
        # Unpacked by the libraries for each format: tarfile's own reader ignores gzip's checksum.
        unpacked = _decompress(path, counted, _packing(counted))
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
        with _reading(self._path):
            count = self._stream.readinto(buffer)
        self._advance(count)
        return count


def _stream(path: Path, stream: IO[bytes], advance: Advance = lambda _: None) -> io.BufferedReader:
    return io.BufferedReader(_Stream(path, stream, advance), 1 << 20)


def _packing(stream: io.BufferedReader) -> str:
    """The compression of an archive as a suffix, or empty; the name does not always tell."""
    begin = stream.peek(8)
    return next((suffix for suffix, magic in _MAGIC.items() if begin.startswith(magic)), "")


def _decompress(path: Path, stream: BinaryIO, suffix: str) -> BinaryIO:
    if not suffix:
        return stream
    if suffix != ".zst":
        return _OPENERS[suffix](stream)
    try:
        import zstandard
    except ImportError as error:
        raise BadInput(
            f"{path}: .zst needs the library zstandard (pip install zstandard), or "
            "unpack it first with the program zstd."
        ) from error
    return io.BufferedReader(_Zstandard(zstandard.ZstdDecompressor(), stream), 1 << 20)


class _Zstandard(io.RawIOBase):
    """Frames of zstd one after the other. The library's own reader accepts truncated files."""

    def __init__(self, decompressor, stream: BinaryIO):
        self._decompressor, self._stream = decompressor, stream
        self._frame: Any = None  # zstandard's decompression object
        self._packed = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        while not self._ready:
            self._packed = self._packed or self._stream.read(1 << 17)
            if not self._packed:
                if self._frame:
                    raise EOFError("the last frame has no end")
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._ready, self._packed = self._frame.decompress(self._packed), b""
            if self._frame.eof:
                self._packed, self._frame = self._frame.unused_data, None
        count = min(len(buffer), len(self._ready))
        buffer[:count], self._ready = self._ready[:count], self._ready[count:]
        return count


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except BadInput:
        raise
    except Exception as error:
        # bz2 raises a bare OSError; one from the disk has a number. EINVAL: sought before the file.
        by_kind = isinstance(error, _DAMAGES) or type(error).__name__ == "ZstdError"
        if by_kind or (isinstance(error, OSError) and error.errno in (None, errno.EINVAL)):
            raise BadInput(f"{path}: the file is damaged or cut off ({error}).") from error
        raise


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


def count_words(path: Path, what: str) -> dict:
    """``lines``, ``words``, ``bytes`` and ``tokens`` of a UTF-8 file whose every line ends with ``</s>``.

    Raises:
        BadInput: the file is not UTF-8.
    """
    lines = words = 0
    size = path.stat().st_size
    try:
        # Universal newlines, as fairseq-preprocess reads.
        with open(path, "rb") as raw, progress(size, what) as bar:
            stream = io.TextIOWrapper(raw, encoding="utf-8")
            while block := stream.readlines(1 << 20):
                lines += len(block)
                words += sum(len(line.split()) for line in block)
                bar.update(raw.tell() - bar.n)
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from error
    return {"lines": lines, "words": words, "bytes": size, "tokens": words + lines}


def not_utf8(name: str | os.PathLike, error: UnicodeDecodeError) -> BadInput:
    """The error for text in another encoding."""
    return BadInput(
        f"{name} is not UTF-8 text ({error.reason}); convert it first, "
        "e.g. with: iconv -f LATIN1 -t UTF-8."
    )


def single_spaced(line: str) -> str:
    """The line with every run of white space, of any kind, as one space and none at its ends."""
    return " ".join(line.split())
