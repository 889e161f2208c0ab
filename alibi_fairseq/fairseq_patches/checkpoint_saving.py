"""Workarounds that make fairseq's checkpoints either complete or absent."""

from __future__ import annotations

import os

import torch
from fairseq import checkpoint_utils, file_io

from ..training.save_dir import replacement_of
from . import patch_method


@patch_method(file_io.PathManager, "copy")
def copy_checkpoint_atomically(copy, src_path, dst_path, overwrite=False):
    """Copy a checkpoint under another name, then rename the copy.

    fairseq copies ``checkpoint_last.pt`` over the old one byte by byte, so that a run that is
    killed meanwhile cannot be resumed (facebookresearch/fairseq#2684).
    """
    if "://" in dst_path:
        return copy(src_path, dst_path, overwrite)
    with replacement_of(dst_path) as temporary:
        copy(src_path, temporary, overwrite)
    return dst_path


@patch_method(checkpoint_utils, "torch_persistent_save")
def save_checkpoint_atomically(save, obj, filename, async_write=False):
    """Write a checkpoint once, flush it to the disk, and remove it if it is incomplete.

    On a full disk fairseq tries three times, each time behind the bytes it has written before, and
    leaves an incomplete ``.tmp`` (no issue is known).
    """
    if async_write or not file_io.PathManager.supports_rename(filename):
        return save(obj, filename, async_write)
    with replacement_of(filename) as temporary, open(temporary, "wb") as stream:
        torch.save(obj, stream)
        stream.flush()
        os.fsync(stream.fileno())
