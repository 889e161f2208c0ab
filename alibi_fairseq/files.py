"""Files that are either complete or absent, JSON, YAML, hashes, locks, and free disk space."""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

import yaml

from .errors import UserInputError

logger = logging.getLogger(__name__)


def is_plain_name(name: object) -> bool:
    """Return True if a text names a file or folder inside the folder it is used in."""
    plain = isinstance(name, str) and name == Path(name).name and "\0" not in name
    return plain and name not in ("", ".", "..")


def open_input(path: str | os.PathLike, mode: str = "rb", **keywords: Any) -> Any:
    """Open a file that the user named for reading.

    Args:
        mode, keywords: as for ``open``.

    Raises:
        UserInputError: it is a device or a pipe, which may never end and can be read only once.
    """
    kind = os.stat(path).st_mode
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise UserInputError(
            f"{path} is a device or a pipe. Write its content to a file, and pass that file."
        )
    return open(path, mode, **keywords)


def check_data_path(path: str | os.PathLike, flag: str) -> None:
    """Check that fairseq can read data in a folder. It splits its data argument at colons.

    Raises:
        UserInputError: the path of the folder, which the option ``flag`` names, has a colon.
    """
    if ":" in os.fspath(path):
        raise UserInputError(
            f"{flag} {path} contains ':', at which fairseq splits paths of data. Choose a path "
            "without it."
        )


@contextmanager
def atomic_write(path: str | os.PathLike, mode: str = "w") -> Iterator[IO]:
    """Open ``path`` for writing under a temporary name in its own folder; rename it when done.

    A reader sees the complete old file or the complete new one. If the block raises an error, the
    old file is unchanged and the temporary one is removed. The folder is created if it is missing,
    and a symbolic link keeps its target. Temporary files of earlier writers of ``path`` that were
    killed are removed.

    Args:
        mode: ``"w"`` (UTF-8, newlines as written) or ``"wb"``.

    Raises:
        UserInputError: there is a folder or a device of that name.
    """
    target = Path(path).resolve()
    if target.exists() and not target.is_file():  # a device would be replaced by a file
        raise UserInputError(f"{path} exists and is not a regular file. Choose another path.")
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    binary = "b" in mode
    encoding = None if binary else "utf-8"
    newline = None if binary else ""
    temporary, number = _create_temporary(target, _create_file)
    try:
        with open(number, mode, encoding=encoding, newline=newline) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            os.replace(temporary, target)  # before the file is closed, and no longer locked
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, which then exists completely.

    It is a link where the file system has links, so the file must be replaced, never changed.
    """
    unfinished = target.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)  # it may be a link to another file
    try:
        os.link(source, unfinished)
    except OSError:
        shutil.copyfile(source, unfinished)
    os.replace(unfinished, target)


def sync_files(paths: Iterable[Path]) -> None:
    """Wait until the contents of files are on the disk; folders are skipped.

    A crash of the machine could otherwise keep a later file that says these are complete.
    """
    for path in paths:
        if path.is_file():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())


@contextmanager
def atomic_folder(path: str | os.PathLike, replaces: bool = False) -> Iterator[Path]:
    """Create a folder to fill, which appears as ``path`` when the block ends without an error.

    After an error, nothing is left, and neither are parents that were created.

    Args:
        replaces: True to replace a folder of that name.

    Raises:
        UserInputError: there is a folder with something in it that is not replaced, or a file.
    """
    target = Path(path).resolve()
    occupied = target.is_dir() and any(target.iterdir()) and not replaces
    if target.is_file() or occupied:
        raise UserInputError(f"{path} is not an empty folder. Choose another --out.")
    new_parents = [parent for parent in target.parents if not parent.exists()]
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    temporary, number = _create_temporary(target, _create_folder)
    try:
        yield temporary
        replaced = _temporary_name(target)  # a leftover if this process is killed here
        if replaces and target.is_dir():
            os.replace(target, replaced)
        elif target.is_dir():
            target.rmdir()
        os.replace(temporary, target)
        shutil.rmtree(replaced, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        for parent in new_parents:
            with suppress(OSError):  # another process has written into it
                parent.rmdir()
        raise
    finally:
        os.close(number)


def _temporary_name(target: Path) -> Path:
    """Return a new name that :func:`_remove_leftovers` finds."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")


def _create_temporary(target: Path, create: Callable[[Path], int]) -> tuple[Path, int]:
    """Create a temporary file or folder, locked until this process ends or closes it.

    Args:
        create: function that creates it at a path, and opens it.

    Returns:
        its path, and its file descriptor.
    """
    while True:
        path = _temporary_name(target)
        number = create(path)
        with suppress(OSError):  # a file system without locks, where leftovers stay
            fcntl.flock(number, fcntl.LOCK_EX)
        # Before the lock, another writer of the target may have removed it as a leftover.
        if path.exists():
            return path, number
        os.close(number)


def _create_file(path: Path) -> int:
    """Create a file with the permissions that the user's umask gives, unlike tempfile."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)


def _create_folder(path: Path) -> int:
    """Create a folder."""
    path.mkdir()
    return os.open(path, os.O_RDONLY)


def write_failure(error: BaseException) -> str | None:
    """Return the reason for which a file could not be written, or None for any other error."""
    if isinstance(error, OSError):
        return error.strerror or "disk full?"
    # torch's writer reports a full disk as a RuntimeError of this file.
    if "inline_container.cc" in str(error):
        return "disk full?"
    return None


def _remove_leftovers(target: Path) -> None:
    """Remove temporary files and folders of ``target`` whose writers have been killed."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.{8 * '[0-9a-f]'}.tmp"):
        try:
            number = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        except OSError:
            pass  # another process is writing it
        finally:
            os.close(number)


@contextmanager
def locked(path: str | os.PathLike, flag: str, work: str, wait: float = 0) -> Iterator[None]:
    """Hold a lock file, which names this process, while the block runs; then remove it.

    The kernel releases the lock when the process ends, however it ends.

    Args:
        path: its folder is created if it is missing.
        flag, work: the option that names the place and what has the lock, for messages.
        wait: seconds to wait for another process that has the lock.

    Raises:
        UserInputError: another process has the lock, and has kept it while this one waited.
    """
    path = Path(path)
    end = time.monotonic() + wait
    stream = None
    while stream is None:
        try:
            stream = _try_to_lock(path, flag, work)
        except UserInputError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.5)
    holder = f"process {os.getpid()} on {socket.gethostname()}\n"
    with stream:
        try:
            with suppress(OSError):  # on a full disk the lock holds without the name of its holder
                os.ftruncate(stream.fileno(), 0)
                os.write(stream.fileno(), holder.encode())
            yield
        finally:
            path.unlink(missing_ok=True)


def _try_to_lock(path: Path, flag: str, work: str) -> IO | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        with stream:
            stream.seek(0)
            raise UserInputError(
                f"{path} is in use by another {work} ({stream.read().strip()}). Wait for it to "
                f"finish, or choose another {flag}."
            ) from error
    except OSError:  # a file system without locks
        logger.warning(f"{path.parent} cannot be locked: start no second {work} there")
    # Its last holder may have removed the file after it was opened here: then another process can
    # lock a new file of this name, and this lock excludes nobody.
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(stream.fileno()), path.stat()):
            return stream
    stream.close()
    return None


def sha256_file(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    return sha256_files([path])


def sha256_files(paths: Iterable[str | os.PathLike]) -> str:
    """Return the SHA-256 of several files one after the other, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in paths:
        with open_input(path) as stream:
            chunk = stream.read(1 << 20)
            while chunk:
                digest.update(chunk)
                chunk = stream.read(1 << 20)
    return digest.hexdigest()


def sha256_if_present(*paths: Path) -> str | None:
    """Return the SHA-256 of files one after the other, or None before all of them exist.

    It is computed once for each change of a file, because many runs share them.
    """
    versions = []
    for path in paths:
        if not path.is_file():
            return None
        status = path.stat()
        versions.append((path.resolve(), status.st_size, status.st_mtime_ns))
    return _cached_sha256(tuple(versions))


@cache
def _cached_sha256(versions: tuple[tuple[Path, int, int], ...]) -> str:
    """Return the SHA-256 of files that have some sizes and times of their last change."""
    return sha256_files(path for path, _, _ in versions)


def check_disk(folder: str | os.PathLike, needed: float, what: str) -> None:
    """Raise UserInputError unless ``needed`` bytes are free for ``what``, the work, in ``--out``.

    The folder need not exist yet.
    """
    existing = Path(folder).resolve()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise UserInputError(
            f"{what} needs about {needed / 1e9:.1f} GB in {folder}, but only {free / 1e9:.1f} GB "
            f"are free there. Free some space, or choose another --out."
        )


_NUMBER = r"-?\d[\d.eE+-]*"
# Strings of a JSON text hold no line breaks, so this only finds lists.
_LIST_OF_NUMBERS = re.compile(rf"\[\s*\n\s*({_NUMBER}(?:,\s+{_NUMBER})*)\s*\n\s*\]")


def json_text(content: Any) -> str:
    """Return JSON with one key per line and every list of numbers on one line; NaN is rejected."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return _LIST_OF_NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def read_json(path: str | os.PathLike) -> Any:
    """Read an untrusted JSON file.

    Raises:
        UserInputError: the file is not UTF-8 or JSON, is nested too deeply, or holds text that
            cannot be written again (half a surrogate pair).
    """
    with open_input(path) as stream:
        content = stream.read()
    try:
        value = json.loads(content.decode())
        json.dumps(value, ensure_ascii=False).encode()
    except (RecursionError, ValueError) as error:
        raise UserInputError(f"{path}: not a JSON file ({error}).") from error
    return value


class _YamlLoader(yaml.SafeLoader):
    """YAML loader that rejects repeated keys, of which PyYAML uses only the last one."""

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        """Return the next mapping.

        Raises:
            ValueError: a key appears twice.
        """
        # Here instead of in construct_mapping, which sees the keys of "<<" among the others.
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in keys:
                raise ValueError(
                    f"the key '{key.value[:60]}' appears again in line {key.start_mark.line + 1}. "
                    "Keep one of them."
                )
            keys.add((key.tag, key.value))
        return node


def read_yaml(path: str | os.PathLike) -> Any:
    """Read a YAML file.

    Raises:
        UserInputError: the file is not YAML, or a key appears twice.
    """
    with open_input(path) as stream:
        content = stream.read()
    try:
        return yaml.load(content, _YamlLoader)  # a subclass of SafeLoader
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        first_line = f"{error} ".splitlines()[0]
        raise UserInputError(f"{path}: {first_line}") from error
