"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BadInput


@contextmanager
def locked(folder: str | os.PathLike, option: str = "--work-dir") -> Iterator[None]:
    """Hold the lock file of a folder, which is created if it is missing.

    The kernel releases the lock when the process ends, however it ends.

    Args:
        option: the flag that names the folder, for the message.

    Raises:
        BadInput: another process holds the lock, or the folder cannot be created.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{option} {folder}: cannot create it ({error.strerror}).") from error
    with open(folder / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(
                f"Another process is working in {folder}; wait until it has finished."
            ) from error
        yield
