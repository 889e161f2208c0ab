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
from contextvars import ContextVar
from pathlib import Path

import torch
from fairseq import checkpoint_utils, file_io
from fairseq.tasks import FairseqTask
from omegaconf import OmegaConf

from ..checkpoints.loading import read_checkpoint, require_safe_loader
from ..errors import BadInput
from ..files import locked
from ..results.provenance import STATE_KEY, fingerprint
from . import around, mentions

logger = logging.getLogger(__name__)

#: Options of the model that no tensor's shape depends on, and what they mean if they are absent.
OPTIONS = {
    "position_method": None,
    "decoder_attention_heads": None,
    "alibi_scale": "none",
    "alibi_bias_max": 8.0,
    "alibi_slopes": "paper",
    "attention_window": 0,
    "block_diagonal": "none",
    "mem_len": 0,
    "clamp_learned_positions": False,
    "rotary_scaling": "none",
    "t5_max_distance": 128,
    "score_scaling": "none",
    "activation_fn": None,
    "decoder_normalize_before": None,
    "no_scale_embedding": False,
}

_ADVICE = (
    "use the options and data it was trained with, or start a new training from its weights with "
    "--finetune-from-model and another --save-dir."
)
#: The trainer whose checkpoint is being loaded, and whether its training goes on.
_loading: ContextVar[tuple | None] = ContextVar("loading", default=None)


@around(file_io.PathManager, "copy", lambda: file_io.IOPathManager is None)
def whole_checkpoints(copy, src_path, dst_path, overwrite=False):
    """``checkpoint_last.pt`` is copied over the old one byte by byte, so that a run that is killed
    meanwhile cannot be resumed (facebookresearch/fairseq#2684). Copy aside, then rename.
    """
    with written_aside(dst_path) as temporary:
        copy(src_path, temporary, overwrite)
    return dst_path


@around(checkpoint_utils, "torch_persistent_save")
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
        BadInput: the disk is full, or the folder cannot be written to.
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
        raise BadInput(
            f"{target} could not be written ({getattr(error, 'strerror', None) or 'disk full?'}); "
            "make room. Checkpoints that were written before are whole, and the same command "
            "resumes from the last one."
        ) from error


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
    with written_aside(last) as temporary:
        shutil.copyfile(whole, temporary)


def damage(path: Path) -> str | None:
    """Describe the damage of a checkpoint file; None if it can be read and its checksums match."""
    try:
        if "model" not in read_checkpoint(path):
            return f"{path} holds no model."
    except BadInput as error:
        return str(error)
    return None


@contextmanager
def alone_in(save_dir: str, rank: int = 0) -> Iterator[None]:
    """Let no other training write to the save folder while the block runs.

    The first process of a job holds the lock for all. A folder that a failed command has made and
    left empty is removed.

    Raises:
        BadInput: another training writes there, or the folder cannot be written to.
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


def _made_anew() -> bool:
    return mentions(FairseqTask.get_batch_iterator, "seed + epoch")


@around(FairseqTask, "get_batch_iterator", _made_anew)
def same_batches_after_resuming(get, task, dataset, *arguments, epoch=1, **keywords):
    """fairseq 0.12.3 makes the batches once, from the seed and the epoch in which the process
    began, and shuffles their order in each epoch. A run that is resumed in its second epoch or
    later so has other batches: for the rest of that epoch it reads some samples twice and others
    not at all. Make them as in the first epoch (no issue is known; 0.12.2 uses only the seed).

    Nothing changes where fairseq makes new batches in each epoch, as for data in several folders.
    """
    anew = keywords.get("disable_iterator_cache") or keywords.get("update_epoch_batch_itr")
    if anew or not task.can_reuse_epoch_itr(dataset) or dataset in task.dataset_to_epoch_iter:
        return get(task, dataset, *arguments, epoch=epoch, **keywords)
    batches = get(task, dataset, *arguments, epoch=1, **keywords)
    dataset.set_epoch(epoch)
    batches.epoch = max(epoch, 1)
    return batches


@contextmanager
def resuming(trainer, cfg) -> Iterator[None]:
    """Compare checkpoints that are loaded inside the block with the trainer's model.

    Args:
        cfg: fairseq's ``CheckpointConfig``. With ``--reset-optimizer``, and from the file that
            ``--finetune-from-model`` names, a new training starts, and options may differ.
    """
    token = _loading.set((trainer, not cfg.reset_optimizer))
    try:
        yield
    finally:
        _loading.reset(token)


def check_same_model(state: dict, path: str) -> None:
    """Compare a checkpoint that has just been read with the model that it is loaded into.

    Raises:
        BadInput: an option or the dictionary differs; the message names both values.
    """
    if (loading := _loading.get()) is None:
        return
    trainer, goes_on = loading
    goes_on = goes_on and path != trainer.cfg.checkpoint.finetune_from_model
    if goes_on:
        _check_options(state, trainer, path)
    trained_with = (state.get("task_state") or {}).get(STATE_KEY)
    ours = fingerprint(trainer.task.source_dictionary)
    if trained_with and trained_with != ours:
        advice = _ADVICE if goes_on else "use the dict.txt it was trained with."
        raise BadInput(
            f"{path} was trained with another dictionary (SHA-256 {trained_with[:12]}…) than the "
            f"data's ({ours[:12]}…), so its word numbers mean other words; {advice}"
        )
    if goes_on:
        _check_progress(state.get("extra_state") or {})


def _check_progress(extra_state: dict) -> None:
    """Check numbers that fairseq uses without a look, or only hours later, when it saves again."""
    progress = {**extra_state, **(extra_state.get("train_iterator") or {})}
    for key in ("best", "previous_training_time", "epoch", "iterations_in_epoch"):
        value = progress.get(key, 1)
        if torch.is_tensor(value) and value.numel() == 1:  # the mean over several processes
            value = value.item()
        if not isinstance(value, (int, float)) or (key != "best" and value < 0):
            raise TypeError(f"'{key}' of its training state is {str(value)[:60]!r}")


def _check_options(state: dict, trainer, path: str) -> None:
    there, here = _options(state.get("cfg")), _options(trainer.cfg)
    for option, default in OPTIONS.items():
        if option not in there and default is None:
            continue  # a checkpoint of another model, whose weights will not fit
        values = there.get(option, default), here.get(option, default)
        if option in here and values[0] != values[1]:
            flag = "--" + option.replace("_", "-")
            raise BadInput(
                f"{path} was trained with {flag} {values[0]} and this command has {flag} "
                f"{values[1]}, which gives the weights another meaning; {_ADVICE}"
            )


def _options(cfg) -> dict:
    """The options of the model as plain values."""
    model = cfg.get("model") if cfg is not None else None
    if OmegaConf.is_config(model):
        model = OmegaConf.to_container(model, resolve=True, enum_to_str=True)
    values = model if isinstance(model, dict) else vars(model) if model is not None else {}
    plain = {name: getattr(value, "value", value) for name, value in values.items()}
    if plain.get("alibi_slopes") == "random":  # drawn by the seed, with which they change
        plain["alibi_slopes"] = f"random --seed {plain.get('train_seed')}"
    return plain
