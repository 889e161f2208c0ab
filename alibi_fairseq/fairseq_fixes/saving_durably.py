"""Checkpoints that stay whole, in a save folder that one training writes to."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import checkpoint_utils, file_io

from ..checkpoints import read_checkpoint
from ..checkpoints.loading import require_safe_loader
from ..errors import BadInput
from ..files import locked
from .patching import wrap

logger = logging.getLogger(__name__)


def whole_checkpoints() -> bool:
    """``checkpoint_last.pt`` is copied over the old one byte by byte, so that a run that is killed
    meanwhile cannot be resumed (facebookresearch/fairseq#2684). Copy aside, then rename.
    """
    if file_io.IOPathManager is not None:  # copies as it sees fit, also to other machines
        return False

    def wrapper(copy, src_path, dst_path, overwrite=False):
        temporary = Path(f"{dst_path}.tmp")
        with removed_on_failure(temporary, dst_path):
            copy(src_path, str(temporary), overwrite)
            os.replace(temporary, dst_path)
        return dst_path

    return wrap(file_io.PathManager, "copy", wrapper, kind=staticmethod)


def whole_checkpoints_or_none() -> bool:
    """On a full disk fairseq tries three times to write behind what it has written before, and
    leaves a ``.tmp`` of any content (``torch_persistent_save``; no issue is known). Write once, to
    the disk, and remove what is not whole.
    """

    def wrapper(save, obj, filename, async_write=False):
        if async_write or not file_io.PathManager.supports_rename(filename):
            return save(obj, filename, async_write)
        temporary = Path(f"{filename}.tmp")
        with removed_on_failure(temporary, filename):
            with temporary.open("wb") as stream:
                torch.save(obj, stream)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, filename)

    return wrap(checkpoint_utils, "torch_persistent_save", wrapper)


def newest_whole_checkpoint(save_dir: str, suffix: str = "") -> None:
    """Replace a damaged ``checkpoint_last.pt`` by the newest checkpoint that is whole.

    The damaged one is kept as ``checkpoint_last.pt.damaged``. Called by the first process only,
    before any of them loads the file.

    Raises:
        BadInput: none is whole.
    """
    last = Path(save_dir) / f"checkpoint_last{suffix}.pt"
    if not last.is_file():
        return
    require_safe_loader(last)
    if (reason := damage(last)) is None:
        return
    others = sorted(
        (path for path in last.parent.glob(f"checkpoint*{suffix}.pt") if path != last),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    whole = next((path for path in others if damage(path) is None), None)
    if whole is None:
        raise BadInput(
            f"{reason.rstrip('.')}; no other checkpoint there is whole. Remove it to start anew."
        )
    logger.warning(f"{reason.rstrip('.')}; the training goes on from {whole} instead")
    shutil.copy2(last, f"{last}.damaged")
    temporary = Path(f"{last}.tmp")
    with removed_on_failure(temporary, str(last)):
        shutil.copyfile(whole, temporary)
        os.replace(temporary, last)


def damage(path: Path) -> str | None:
    """Describe the damage of a checkpoint file; None if it can be read and its checksums match."""
    try:
        if "model" not in read_checkpoint(path):
            return f"{path} holds no model."
    except BadInput as error:
        return str(error)
    return None


@contextmanager
def removed_on_failure(temporary: Path, target: str) -> Iterator[None]:
    """Remove a temporary file if writing it fails.

    Raises:
        BadInput: the disk is full, or the folder cannot be written to.
    """
    try:
        yield
    except BaseException as error:
        full = isinstance(error, OSError) or "inline_container.cc" in str(error)
        temporary.unlink(missing_ok=True)
        if not full:
            raise
        raise BadInput(
            f"{target} could not be written ({getattr(error, 'strerror', None) or 'disk full?'}); "
            "make room. Checkpoints that were written before are whole, and the same command "
            "resumes from the last one."
        ) from error


@contextmanager
def nothing_left_behind(save_dir: str) -> Iterator[None]:
    """Remove the save folder if a command made it and failed before it wrote anything there."""
    was_there = os.path.isdir(save_dir)
    try:
        yield
    except Exception:
        if not was_there and os.path.isdir(save_dir) and not os.listdir(save_dir):
            os.rmdir(save_dir)
        raise


@contextmanager
def alone_in(save_dir: str, rank: int = 0) -> Iterator[None]:
    """Let no other training write to the save folder while the block runs.

    The first process of a job holds the lock for all.

    Raises:
        BadInput: another training writes there, or the folder cannot be written to.
    """
    if rank > 0 or "://" in save_dir:
        yield
        return
    with locked(Path(save_dir) / "training.lock", f"--save-dir {save_dir}", "training"):
        yield
