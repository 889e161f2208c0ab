"""Checkpoints that stay whole, and trainings that resume from them what they were.

fairseq loads the weights into whatever the command line describes. Shapes that differ are an error
there, but another position method or number of heads has tensors of the same shapes.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from fairseq import checkpoint_utils, file_io
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from omegaconf import OmegaConf

from ..checkpoints.loading import read_checkpoint, require_safe_loader
from ..errors import UserInputError
from ..files import locked
from ..models.config import AlibiLanguageModelConfig
from ..results.provenance import STATE_KEY, dictionary_digest
from . import patch_method

logger = logging.getLogger(__name__)

#: Options of the model that no tensor's shape depends on. Older checkpoints lack those of later methods.
OPTIONS = (
    *("position_method", "decoder_attention_heads", "activation_fn", "decoder_normalize_before"),
    *("alibi_scale", "alibi_bias_max", "alibi_slopes", "score_scaling"),
    *("rotary_base", "rotary_percent", "p_rope", "rotary_scaling"),
    *("longrope_short_factors", "longrope_long_factors"),
    *("attention_window", "block_diagonal", "mem_len", "t5_max_distance"),
    *("clamp_learned_positions", "no_scale_embedding", "excluded_symbols"),
)

_ADVICE = (
    "use the options and data it was trained with, or start a new training from its weights with "
    "--finetune-from-model and another --save-dir."
)
#: The trainer whose checkpoint is being loaded, and whether its training goes on.
_loading: tuple | None = None


@patch_method(file_io.PathManager, "copy")
def copy_checkpoint_atomically(copy, src_path, dst_path, overwrite=False):
    """``checkpoint_last.pt`` is copied over the old one byte by byte, so that a run that is killed
    meanwhile cannot be resumed (facebookresearch/fairseq#2684). Copy aside, then rename.
    """
    if "://" in dst_path:
        return copy(src_path, dst_path, overwrite)
    with written_aside(dst_path) as temporary:
        copy(src_path, temporary, overwrite)
    return dst_path


@patch_method(checkpoint_utils, "torch_persistent_save")
def whole_checkpoints_or_none(save, obj, filename, async_write=False):
    """On a full disk fairseq tries three times to write behind what it has written before, and
    leaves a ``.tmp`` of any content (``torch_persistent_save``; no issue is known). Write once, to
    the disk, and remove what is not whole.
    """
    if async_write or not file_io.PathManager.supports_rename(filename):
        return save(obj, filename, async_write)
    with written_aside(filename) as temporary, open(temporary, "wb") as stream:
        torch.save(obj, stream)
        stream.flush()
        os.fsync(stream.fileno())


@contextmanager
def written_aside(target: str | os.PathLike) -> Iterator[str]:
    """Write a file under another name, which replaces ``target`` when the block ends.

    Raises:
        UserInputError: the disk is full, or the folder cannot be written to.
    """
    temporary = f"{target}.tmp"
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException as error:
        full = isinstance(error, OSError) or "inline_container.cc" in str(error)
        Path(temporary).unlink(missing_ok=True)
        if not full:
            raise
        raise UserInputError(
            f"{target} could not be written ({getattr(error, 'strerror', None) or 'disk full?'}); "
            "make room. Checkpoints that were written before are whole, and the same command "
            "resumes from the last one."
        ) from error


def newest_whole_checkpoint(save_dir: str, suffix: str = "") -> None:
    """Replace a damaged ``checkpoint_last.pt`` by the newest checkpoint that is whole.

    The damaged one is kept as ``checkpoint_last.pt.damaged``. Called by the first process only,
    before any of them loads the file.

    Raises:
        UserInputError: none is whole.
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
        raise UserInputError(
            f"{reason.rstrip('.')}; no other checkpoint there is whole. Remove it to start anew."
        )
    logger.warning(f"{reason.rstrip('.')}; the training goes on from {whole} instead")
    shutil.copy2(last, f"{last}.damaged")
    with written_aside(last) as temporary:
        shutil.copyfile(whole, temporary)


def damage(path: Path) -> str | None:
    """Describe the damage of a checkpoint file; None if it can be read and its checksums match."""
    try:
        if "model" not in read_checkpoint(path):
            return f"{path} holds no model."
    except UserInputError as error:
        return str(error)
    return None


@contextmanager
def lock_save_dir(save_dir: str, rank: int = 0) -> Iterator[None]:
    """Let no other training write to the save folder while the block runs.

    The first process of a job holds the lock for all. A folder that a failed command has made and
    left empty is removed.

    Raises:
        UserInputError: another training writes there, or the folder cannot be written to.
    """
    folder = Path(save_dir)
    lock: AbstractContextManager = nullcontext()
    if rank == 0 and "://" not in save_dir:
        lock = locked(folder / "training.lock", f"--save-dir {save_dir}", "training")
    was_there = folder.is_dir()
    try:
        with lock:
            yield
    except Exception:
        if not was_there and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


@patch_method(FairseqTask, "get_batch_iterator")
def same_batches_after_resuming(get, task, dataset, *arguments, epoch=1, **keywords):
    """fairseq makes the batches once, 0.12.3 from the seed and the epoch in which the process began,
    and shuffles their order in each epoch. A run that is resumed in its second epoch or later so has
    other batches: for the rest of that epoch it reads some samples twice and others not at all. Make
    them as in the first epoch (no issue is known).

    Nothing changes where fairseq makes new batches in each epoch, as for data in several folders.
    """
    anew = keywords.get("disable_iterator_cache") or keywords.get("update_epoch_batch_itr")
    if anew or not task.can_reuse_epoch_itr(dataset) or dataset in task.dataset_to_epoch_iter:
        return get(task, dataset, *arguments, epoch=epoch, **keywords)
    batches = get(task, dataset, *arguments, epoch=1, **keywords)
    dataset.set_epoch(epoch)
    batches.epoch = max(epoch, 1)
    return batches


@patch_method(Trainer, "load_checkpoint")
def resumed_as_it_was(load, trainer, path, reset_optimizer=False, *arguments, **keywords):
    """fairseq loads the weights into whatever the command line describes (:func:`check_same_model`).

    With ``--reset-optimizer`` or ``--finetune-from-model`` a new training starts, and options may
    differ.
    """
    global _loading
    _loading = trainer, not reset_optimizer
    try:
        return load(trainer, path, reset_optimizer, *arguments, **keywords)
    finally:
        _loading = None


def check_same_model(state: dict, path: str) -> None:
    """Compare a checkpoint that has just been read with the trainer that it is loaded into, if any.

    Raises:
        UserInputError: an option or the dictionary differs; the message names both values.
    """
    if _loading is None:
        return
    trainer, goes_on = _loading
    if goes_on:
        _check_options(state, trainer, path)
    trained_with = (state.get("task_state") or {}).get(STATE_KEY)
    ours = dictionary_digest(trainer.task.source_dictionary)
    if trained_with and trained_with != ours:
        advice = _ADVICE if goes_on else "use the dict.txt it was trained with."
        raise UserInputError(
            f"{path} was trained with another dictionary (SHA-256 {trained_with[:12]}…) than the "
            f"data's ({ours[:12]}…), so its word numbers mean other words; {advice}"
        )


def _check_options(state: dict, trainer, path: str) -> None:
    there, here = _options(state.get("cfg")), _options(trainer.cfg)
    if "position_method" not in there:
        here.pop("position_method", None)  # a checkpoint of fairseq's transformer_lm
    for option in OPTIONS:
        before = there.get(option, getattr(AlibiLanguageModelConfig, option))
        if option in here and before != here[option]:
            flag = "--" + option.replace("_", "-")
            raise UserInputError(
                f"{path} was trained with {flag} {before} and this command has {flag} "
                f"{here[option]}, which gives the weights another meaning; {_ADVICE}"
            )


def _options(cfg) -> dict:
    """The options of the model as plain values."""
    model = cfg.get("model") if cfg is not None else None
    if OmegaConf.is_config(model):
        model = OmegaConf.to_container(model, resolve=True, enum_to_str=True)
    values = model if isinstance(model, dict) else vars(model) if model is not None else {}
    plain = {name: getattr(value, "value", value) for name, value in values.items()}
    if "attention_window" in plain:  # a number in checkpoints of earlier versions
        plain["attention_window"] = str(plain["attention_window"])
    if plain.get("alibi_slopes") == "random":  # drawn by the seed, with which they change
        plain["alibi_slopes"] = f"random --seed {plain.get('train_seed')}"
    return plain
