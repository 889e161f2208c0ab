"""Save folder of a training run: its lock, and checkpoint files that are complete or absent."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from ..errors import UserInputError
from ..files import locked, write_failure
from .loading import read_checkpoint, require_safe_loader

logger = logging.getLogger(__name__)


@contextmanager
def temporary_replacement(target: str | os.PathLike) -> Iterator[str]:
    """Give the name of a temporary file, which replaces ``target`` when the block ends.

    Raises:
        UserInputError: the disk is full, or the folder cannot be written to.
    """
    temporary = f"{target}.tmp"
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        reason = write_failure(error)
        if reason is None:
            raise
        raise UserInputError(
            f"{target} could not be written ({reason}). Make room, or make the folder writable. "
            "Earlier checkpoints are valid, and the same command resumes from the last one."
        ) from error


def repair_last_checkpoint(save_dir: str, suffix: str = "") -> None:
    """Replace a corrupted ``checkpoint_last.pt`` by the newest valid checkpoint.

    The corrupted file is kept as ``checkpoint_last.pt.damaged``. Only the first process calls this,
    before any of them loads the file.

    Raises:
        UserInputError: no checkpoint is valid.
    """
    last = Path(save_dir) / f"checkpoint_last{suffix}.pt"
    if not last.is_file():
        return
    require_safe_loader(last)  # whose error corruption() would take for a damaged file
    reason = corruption(last)
    if reason is None:
        return
    reason = reason.rstrip(".")
    valid = newest_valid_checkpoint(last, suffix)
    if valid is None:
        raise UserInputError(
            f"{reason}, and no other checkpoint in {save_dir} is valid. Remove it to start over."
        )
    logger.warning(f"{reason}; resuming from {valid} instead")
    shutil.copy2(last, f"{last}.damaged")
    with temporary_replacement(last) as temporary:
        shutil.copyfile(valid, temporary)


def newest_valid_checkpoint(last: Path, suffix: str) -> Path | None:
    """Return the newest valid checkpoint next to ``last``, or None."""
    others = [path for path in last.parent.glob(f"checkpoint*{suffix}.pt") if path != last]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others:
        if corruption(path) is None:
            return path
    return None


def corruption(path: Path) -> str | None:
    """Describe the corruption of a checkpoint; return None if it loads and its checksums match."""
    try:
        state = read_checkpoint(path)
    except UserInputError as error:
        return str(error)
    if "model" not in state:
        return f"{path} holds no model."
    return None


@contextmanager
def lock_save_dir(save_dir: str, rank: int = 0) -> Iterator[None]:
    """Lock the save folder against other training runs while the block runs.

    The first process of a job has the lock for all. If the command fails, a folder that it
    created and left empty is removed.

    Raises:
        UserInputError: another training run writes to the folder, or it cannot be written to.
    """
    folder = Path(save_dir)
    lock: AbstractContextManager = nullcontext()
    if rank == 0 and "://" not in save_dir:
        lock = locked(folder / "training.lock", f"--save-dir {save_dir}", "training")
    existed = folder.is_dir()
    try:
        with lock:
            yield
    except Exception:
        if not existed and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise
