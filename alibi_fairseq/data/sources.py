"""Text in files, folders, and archives, read as streams that are never unpacked to disk."""

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
from typing import IO, Any, BinaryIO, NoReturn

from ..errors import UserInputError
from ..files import open_input, sha256_file

#: Function that opens each compressed format, and the first bytes of its files.
_COMPRESSED: dict[str, tuple[Callable, bytes]] = {
    ".gz": (gzip.open, b"\x1f\x8b"),
    ".xz": (lzma.open, b"\xfd7zXZ\0"),
    ".bz2": (bz2.open, b"BZh"),
}
#: Beginnings of files that are not plain text, and their formats.
_NOT_TEXT = {
    **{magic: f"compressed ({suffix})" for suffix, (_, magic) in _COMPRESSED.items()},
    b"\x28\xb5\x2f\xfd": "compressed (.zst)",
    b"7z\xbc\xaf\x27\x1c": "an archive (.7z)",
    b"PK\x03\x04": "an archive (.zip)",
    b"PAR1\x15": "a table (.parquet)",
}
_ARCHIVES = (
    ".tar",
    ".tbz",
    ".tbz2",
    ".tgz",
    ".txz",
    ".zip",
    *(f".tar{suffix}" for suffix in _COMPRESSED),
)
#: Endings of files that may hold text, but are not read from folders.
_UNREAD = (*_ARCHIVES, *_COMPRESSED, ".7z", ".arrow", ".jsonl", ".parquet", ".zst")
#: Bytes of text per byte of a compressed English file, rounded up. Only disk checks and progress
#: bars use it.
_EXPANSION = 5


def is_archive(path: str | os.PathLike) -> bool:
    """Return True if a file has the suffix of an archive, or is a compressed tar without it.

    The tars of OpenWebText are named ``urlsf_subset00-1_data.xz``.

    Raises:
        UserInputError: a compressed file is damaged.
        OSError: it cannot be read.
    """
    return str(path).lower().endswith(_ARCHIVES) or _is_compressed_tar(Path(path))


def is_unnamed_tar(path: Path) -> bool:
    """Return True if a file is a compressed tar without the suffix of an archive.

    Raises:
        UserInputError: a compressed file is damaged.
        OSError: it cannot be read.
    """
    return not path.name.lower().endswith(_ARCHIVES) and _is_compressed_tar(path)


def _is_compressed_tar(file: Path) -> bool:
    """Return True if a compressed file starts like a tar archive."""
    if file.suffix.lower() not in _COMPRESSED:
        return False
    unpack, _ = _COMPRESSED[file.suffix.lower()]
    with errors_naming(file), open_input(file) as raw:
        header = unpack(raw).read(512)
    return header[257:262] == b"ustar"


def text_files(
    sources: Iterable[str | os.PathLike], endings: tuple[str, ...] = (".txt",)
) -> list[Path]:
    """List files, and the files in folders that have certain endings.

    Args:
        sources: files and folders. A file may have any ending.
        endings: endings of text files. Compressed ones have one more suffix.

    Returns:
        The files in the order of the sources. Files of a folder are sorted. Compressed tars without
        the suffix of an archive are among them, whatever their ending.

    Raises:
        UserInputError: a folder has no such file. A link to a folder or to a missing file is
            rejected, because its text would be left out. So are files of a folder in a format of
            data that is not read, and a file that is compressed without the suffix of a known
            format.
        OSError: a source does not exist, or a folder cannot be read.
    """
    suffixes = []
    for ending in endings:
        suffixes.append(ending)
        suffixes += [ending + packed for packed in _COMPRESSED]
    files = []
    for source in sources:
        path = Path(source)
        if not path.is_dir():
            files.append(path)
            continue
        members: list[Path] = []
        unread: list[Path] = []
        for member in _paths_in(path):
            name = member.name.lower()
            if member.is_symlink() and member.is_dir():
                raise UserInputError(
                    f"{member} is a link to a folder, which is not followed. Replace it with the "
                    "folder, or remove it and pass that folder as another source."
                )
            if not member.exists() and not name.startswith("."):
                raise UserInputError(
                    f"{member} is a link to a missing file. Get the file, or remove the link."
                )
            if not member.is_file():
                continue
            if is_unnamed_tar(member) or name.endswith(tuple(suffixes)):
                members.append(member)
            elif name.endswith(_UNREAD):
                unread.append(member)
        _check_all_read(path, unread)
        if not members:
            raise UserInputError(f"{path}: no files *{', *'.join(suffixes)} in this folder.")
        files += sorted(members)
    for file in files:
        _check_format(file)
    return files


def _check_all_read(folder: Path, unread: list[Path]) -> None:
    """Raise UserInputError if files of a folder that may hold text are not read."""
    if unread:
        number = f" and {len(unread) - 1:,} more" if len(unread) > 1 else ""
        raise UserInputError(
            f"{min(unread)}{number} would be left out, because folders are searched for text files "
            f"only. Move it out of {folder}. Pass archives and compressed text by name, and "
            "convert other formats, such as .jsonl, .parquet, or .zst, to text files."
        )


def _paths_in(folder: Path) -> Iterator[Path]:
    """Yield all paths in a folder and its subfolders. Links to folders are not followed.

    Raises:
        OSError: a folder cannot be read.
    """

    def raise_error(error: OSError) -> NoReturn:
        raise error

    # Path.rglob skips folders that cannot be read.
    for parent, folders, files in os.walk(folder, onerror=raise_error):
        for name in (*folders, *files):
            yield Path(parent, name)


def _check_format(file: Path) -> None:
    """Check that a file whose suffix is of no compressed format or archive may be plain text.

    Raises:
        UserInputError: it starts like a file of another format.
    """
    if is_archive(file) or file.suffix.lower() in _COMPRESSED:
        return
    with open_input(file) as stream:
        beginning = stream.read(8)
    for magic, kind in _NOT_TEXT.items():
        if beginning.startswith(magic):
            raise UserInputError(
                f"{file} is {kind}, not plain text. Extract the text, or rename the file with the "
                "suffix of its format (.gz, .xz, .bz2, .zip, .tar.gz, .tar.xz, or .tar.bz2)."
            )


def check_output_folder(out: str | os.PathLike, sources: Iterable[str | os.PathLike]) -> None:
    """Check that files written to a folder do not become text.

    Args:
        out: output folder.
        sources: files and folders of text.

    Raises:
        UserInputError: the output folder is in a source, or is one.
    """
    for source in sources:
        path = Path(source)
        if path.is_dir() and Path(out).resolve().is_relative_to(path.resolve()):
            raise UserInputError(
                f"--out {out} is inside {source}, so its files would be read as text. Choose an "
                "--out outside of all folders of text."
            )


def text_bytes(files: Iterable[Path]) -> int:
    """Return the bytes of text in files: exact for plain files, an estimate for compressed ones."""
    packed = (*_ARCHIVES, *_COMPRESSED)
    total = 0
    for file in files:
        size = file.stat().st_size
        if file.name.lower().endswith(packed):
            size *= _EXPANSION
        total += size
    return total


def open_texts(
    path: Path, ending: str = ".txt", unread: tuple[str, ...] = ()
) -> Iterator[tuple[str, BinaryIO]]:
    """Yield the name and a stream of each text in a file.

    Each stream must be read before the next one is requested.

    Args:
        path: a plain file, a compressed file, or an archive.
        ending: ending of the members of an archive to read.
        unread: endings of other members that hold text. They are rejected, like compressed members.

    Raises:
        UserInputError: the file is damaged, or is an archive without such a member, or with text
            that would be left out.
    """
    with open_input(path) as raw, errors_naming(path):
        if is_archive(path):
            is_zip = raw.peek(8).startswith(b"PK")
            read_members = _zip_members if is_zip else _tar_members
            num_texts = 0
            for text in read_members(path, raw, ending, unread):
                num_texts += 1
                yield text
            if not num_texts:
                raise UserInputError(
                    f"{path} has no member *{ending}. Pass an archive with text, or the extracted "
                    "text."
                )
            return
        stream = raw
        if path.suffix.lower() in _COMPRESSED:
            unpack, _ = _COMPRESSED[path.suffix.lower()]
            stream = unpack(raw)
        yield path.name, _buffered(path, stream)


def _zip_members(
    path: Path, raw: IO[bytes], ending: str, unread: tuple[str, ...]
) -> Iterator[tuple[str, BinaryIO]]:
    with zipfile.ZipFile(raw) as archive:
        # A name may be in an archive repeatedly, and stands for its last member only.
        for info in archive.infolist():
            if _is_text(path, info.filename, ending, unread):
                with archive.open(info) as member:
                    yield info.filename, _buffered(path, member)


def _tar_members(
    path: Path, raw: io.BufferedReader, ending: str, unread: tuple[str, ...]
) -> Iterator[tuple[str, BinaryIO]]:
    # The first bytes decide, since names such as .tgz and .tar do not always show the format.
    # tarfile could unpack the file, but it ignores the checksum of gzip.
    first_bytes = raw.peek(8)
    unpacked: Any = raw
    for unpack, magic in _COMPRESSED.values():
        if first_bytes.startswith(magic):
            unpacked = unpack(raw)
    # "r|" reads once from front to back, without seeking or unpacking to disk.
    with tarfile.open(fileobj=unpacked, mode="r|", tarinfo=_StrictTarInfo) as tar:
        for member in tar:
            is_link = member.islnk() or member.issym()
            if not member.isfile() and not is_link:
                continue
            if not _is_text(path, member.name, ending, unread):
                continue
            if is_link:  # GNU tar writes one for each further name of a file
                raise UserInputError(
                    f"{path}: {member.name} is a link, whose text would be left out. Extract the "
                    "archive and pass the folder, or repack it with tar --dereference "
                    "--hard-dereference."
                )
            content: Any = tar.extractfile(member)
            yield member.name, _buffered(path, content)
        # Only zeros may follow the last member. Reading to the end verifies the checksum of gzip.
        stream: Any = tar.fileobj
        while rest := stream.read(1 << 20):
            if rest.strip(b"\0"):
                raise UserInputError(
                    f"{path} contains several tar archives, of which only the first one would be "
                    "read. Pass each archive as a file of its own."
                )


def _is_text(path: Path, name: str, ending: str, unread: tuple[str, ...]) -> bool:
    """Return True if a member of an archive is read, as in :func:`open_texts`.

    Raises:
        UserInputError: it may hold text that is not read.
    """
    if name.lower().endswith(ending):
        return True
    if name.lower().endswith((*_UNREAD, *unread)):
        raise UserInputError(
            f"{path}: {name} would be left out, because only *{ending} is read from archives. "
            "Extract the archive, convert or remove this file, and pass the folder."
        )
    return False


class _StrictTarInfo(tarfile.TarInfo):
    """A member of a tar archive that must be followed by another member or by a block of zeros.

    Otherwise, tarfile takes a damaged or missing header for the end of the archive.
    """

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _StrictTarInfo:
        """Read the next member.

        Raises:
            tarfile.EOFHeaderError: there is a block of zeros, which ends the archive.
            tarfile.ReadError: there is neither a member nor a block of zeros.
        """
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from error


class _NamedReader(io.RawIOBase):
    """A stream whose errors name the file."""

    def __init__(self, path: Path, stream: IO[bytes]):
        self._path = path
        self._stream: Any = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        with errors_naming(self._path):
            return self._stream.readinto(buffer)


def _buffered(path: Path, stream: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_NamedReader(path, stream), 1 << 20)


def text_name(file: Path, name: str) -> str:
    """Return the name of a text for messages: the path of its file, and its name in an archive."""
    return str(file) if name == file.name else f"{file}: {name}"


@contextmanager
def errors_naming(path: str | os.PathLike) -> Iterator[None]:
    """Convert exceptions raised for a damaged file to a UserInputError that names the file.

    These exceptions have no common type. Errors of the disk are raised unchanged.
    """
    try:
        yield
    except UserInputError:
        raise
    except Exception as error:
        # An error of the disk is an OSError with an errno. For a damaged file, bz2 raises one
        # without an errno, and a seek to a negative position raises EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise UserInputError(
            f"{path} is damaged, truncated, or not UTF-8 text ({error}). Convert other encodings, "
            "for example with iconv -f LATIN1 -t UTF-8."
        ) from error


def file_list_digest(files: list[Path]) -> str:
    """Return a hash of the names and sizes of files."""
    listing = "\n".join(f"{file.name} {file.stat().st_size}" for file in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def describe_files(files: list[Path]) -> list[dict]:
    """Return the manifest's entries for the sources of a text."""
    return [
        {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in files
    ]


def shuffle_key(seed: int, content: object) -> bytes:
    """Return a sort key that depends only on the seed and on the content or its hash."""
    return hashlib.sha256(f"{seed} {content}".encode()).digest()


def single_spaced(line: str) -> str:
    """Return a line without whitespace at its ends, and with single spaces between words."""
    return " ".join(line.split())
