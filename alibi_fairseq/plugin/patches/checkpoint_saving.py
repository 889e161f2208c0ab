"""Workarounds that make fairseq's checkpoints either complete or absent, or omit them."""

from __future__ import annotations

import logging
import math
import os
import sys

import torch
from fairseq import checkpoint_utils, file_io
from fairseq.trainer import Trainer

from ...errors import UserInputError
from ..save_dir import temporary_replacement
from . import patch_method

logger = logging.getLogger(__name__)


@patch_method(file_io.PathManager, "copy")
def copy_checkpoint_atomically(copy, src_path, dst_path, overwrite=False):
    """Copy a checkpoint under another name, then rename the copy.

    fairseq copies ``checkpoint_last.pt`` over the old one byte by byte, so that a run that is
    killed meanwhile cannot be resumed (facebookresearch/fairseq#2684).
    """
    if "://" in dst_path:
        return copy(src_path, dst_path, overwrite)
    with temporary_replacement(dst_path) as temporary:
        copy(src_path, temporary, overwrite)
    return dst_path


@patch_method(checkpoint_utils, "torch_persistent_save")
def save_checkpoint_atomically(save, obj, filename, async_write=False):
    """Write a checkpoint once, flush it to the disk, and remove it if it is incomplete.

    On a full disk fairseq tries three times, each time behind the bytes it has written before, and
    leaves an incomplete ``.tmp`` (not reported upstream).
    """
    if async_write or not file_io.PathManager.supports_rename(filename):
        return save(obj, filename, async_write)
    with temporary_replacement(filename) as temporary, open(temporary, "wb") as stream:
        torch.save(obj, stream)
        stream.flush()
        os.fsync(stream.fileno())


@patch_method(checkpoint_utils, "save_checkpoint")
def save_undefined_loss_without_score(save, cfg, trainer, epochs, val_loss):
    """Save a checkpoint whose validation loss is NaN as one without a validation.

    fairseq takes NaN for the best loss so far, so that the model of the next validation replaces a
    better one in ``checkpoint_best.pt`` (not reported upstream).
    """
    if val_loss is not None and math.isnan(val_loss):
        val_loss = None
    return save(cfg, trainer, epochs, val_loss)


@patch_method(Trainer, "save_checkpoint")
def omit_crash_checkpoint(save, trainer, filename, extra_state):
    """Save no ``crash.pt`` for an invalid option or a training run that diverged.

    fairseq saves it for any error in an update, and never removes it (not reported upstream). It is
    as large as a checkpoint, and nothing can resume from it.
    """
    error = sys.exc_info()[1]
    expected = isinstance(error, (UserInputError, FloatingPointError))
    if expected and os.path.basename(filename) == "crash.pt":
        logger.info(f"{filename} is not saved")
        return None
    return save(trainer, filename, extra_state)
