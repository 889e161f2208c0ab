"""Workarounds of :mod:`.compat` that keep checkpoints whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import checkpoint_utils, file_io

from .errors import BadInput
from .patching import wrap


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
