"""Workarounds for later epochs, and for training runs that are resumed or run again."""

from __future__ import annotations

import logging

from fairseq.data.iterators import EpochBatchIterator
from fairseq.optim import AMPOptimizer, FP16Optimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin, _MemoryEfficientFP16OptimizerMixin
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ...errors import UserInputError
from ..progress import is_finished, note_update
from ..resume import loading_into
from . import patch_method

logger = logging.getLogger(__name__)

#: Key in the state of an optimizer with ``--fp16``, which fairseq ignores when it loads one.
_LOSS_SCALE_COUNTERS = "loss_scale_counters"
#: Attributes of fairseq's ``DynamicLossScaler`` that determine when the loss scale changes.
_COUNTERS = (
    "_iter",
    "_last_overflow_iter",
    "_last_rescale_iter",
    "_overflows_since_rescale",
)


@patch_method(FairseqTask, "get_batch_iterator")
def make_batches_of_first_epoch(get, task, dataset, *arguments, epoch=1, **keywords):
    """Make the batches of a resumed training as in its first epoch.

    fairseq makes the batches once, 0.12.3 from the seed and the epoch in which the process began,
    and shuffles their order in each epoch. A run that is resumed in its second epoch or later thus
    has other batches. For the rest of that epoch it reads some samples twice and others not at all
    (not reported upstream).

    Nothing changes where fairseq makes new batches in each epoch, as for data in several folders.
    """
    renewed = keywords.get("disable_iterator_cache") or keywords.get("update_epoch_batch_itr")
    reusable = task.can_reuse_epoch_itr(dataset) and dataset not in task.dataset_to_epoch_iter
    if renewed or not reusable:
        return get(task, dataset, *arguments, epoch=epoch, **keywords)
    batches = get(task, dataset, *arguments, epoch=1, **keywords)
    dataset.set_epoch(epoch)
    batches.epoch = max(epoch, 1)
    return batches


@patch_method(EpochBatchIterator, "_get_iterator_for_epoch")
def shuffle_epochs_after_curriculum(get, epochs, epoch, shuffle, *arguments, **keywords):
    """Shuffle the batches of an epoch if it is asked for, also if the first was not shuffled.

    fairseq 0.12.3 makes its data loader once, and shuffles later epochs only if it has shuffled the
    first. With ``--curriculum N``, no epoch is shuffled, unless the training is resumed after epoch
    N, which then has another order for the rest of an epoch (not reported upstream).
    """
    sampler = getattr(epochs, "epoch_batch_sampler", None)
    if sampler is not None:
        sampler.shuffle = shuffle
    return get(epochs, epoch, shuffle, *arguments, **keywords)


@patch_method(Trainer, "load_checkpoint")
def check_model_while_loading(load, trainer, path, reset_optimizer=False, *arguments, **keywords):
    """Compare model, dictionary, and batches of the checkpoint and of the command.

    fairseq loads the weights into whatever the command line describes (:mod:`..resume`; no
    issue is known). With ``--reset-optimizer`` or ``--finetune-from-model`` a new training starts,
    and the options of the position method may differ.
    """
    options = trainer.cfg.checkpoint
    # fairseq resets both for --finetune-from-model.
    starts_from_weights = reset_optimizer and not options.reset_optimizer
    restores_position = not (options.reset_dataloader or starts_from_weights)
    with loading_into(trainer, not reset_optimizer, restores_position):
        return load(trainer, path, reset_optimizer, *arguments, **keywords)


@patch_method(Trainer, "load_checkpoint")
def restore_number_of_updates(load, trainer, path, reset_optimizer=False, *arguments, **keywords):
    """Restore the number of updates from a checkpoint without optimizer state.

    fairseq restores it only with that state, which ``--no-save-optimizer-state`` omits. A resumed
    training would restart at update 0 from the trained weights (not reported upstream).
    :func:`skip_finished_training` rejects the training unless it is finished.
    """
    extra_state = load(trainer, path, reset_optimizer, *arguments, **keywords)
    trainer.checkpoint_without_optimizer = None
    history = trainer._optim_history
    if reset_optimizer or not history:
        return extra_state
    updates = history[-1].get("num_updates", 0)
    if updates > trainer.get_num_updates():
        trainer.set_num_updates(updates)
        trainer.checkpoint_without_optimizer = path
    return extra_state


@patch_method(_FP16OptimizerMixin, "state_dict")
@patch_method(_MemoryEfficientFP16OptimizerMixin, "state_dict")
def save_loss_scale_counters(state_dict, optimizer):
    """Save when the loss scale changed last, with the scale itself.

    fairseq saves only the scale, so that a resumed training increases it after other updates than
    an uninterrupted one, and leaves out other updates (not reported upstream).
    """
    state = state_dict(optimizer)
    if optimizer.scaler is not None:
        state[_LOSS_SCALE_COUNTERS] = {name: getattr(optimizer.scaler, name) for name in _COUNTERS}
    return state


@patch_method(_FP16OptimizerMixin, "load_state_dict")
@patch_method(_MemoryEfficientFP16OptimizerMixin, "load_state_dict")
def load_loss_scale_counters(load, optimizer, state_dict, *arguments, **keywords):
    """Load what :func:`save_loss_scale_counters` has saved; checkpoints of fairseq have none."""
    load(optimizer, state_dict, *arguments, **keywords)
    counters = state_dict.get(_LOSS_SCALE_COUNTERS)
    if counters is not None and optimizer.scaler is not None:
        for name in _COUNTERS:
            setattr(optimizer.scaler, name, counters[name])


def warn_of_mixed_precision(trainer) -> None:
    """Warn that a resumed training in mixed precision differs from an uninterrupted one.

    With ``--fp16`` and ``--bf16``, the optimizer updates fp32 copies of the weights, and the
    checkpoints hold only the weights in half precision. With ``--amp``, they lack the loss scale
    (not reported upstream). The memory-efficient optimizers have no copies.
    """
    if trainer.get_num_updates() == 0:
        return
    if isinstance(trainer.optimizer, FP16Optimizer):
        flag = "--fp16" if trainer.cfg.common.fp16 else "--bf16"
        logger.warning(
            f"{flag}: checkpoints hold the weights in half precision, so the numbers may differ "
            "from those of an uninterrupted training"
        )
    elif isinstance(trainer.optimizer, AMPOptimizer):
        logger.warning(
            "--amp: checkpoints do not hold the loss scale, so the numbers may differ from those "
            "of an uninterrupted training"
        )


def skip_finished_training(trainer, epochs) -> None:
    """End the loop of a training run that has reached its last update or epoch before it starts.

    fairseq compares with the limits after an update, so that each rerun makes one more and saves it
    (not reported upstream).

    Args:
        trainer: fairseq's trainer.
        epochs: fairseq's iterator over the batches of the epoch to train next.

    Raises:
        UserInputError: the training is not finished, and its checkpoint has no optimizer state.
    """
    if is_finished(trainer, epochs):
        updates = trainer.get_num_updates()
        logger.info(f"nothing to train: this checkpoint has made all of its {updates} updates")
        trainer.cfg.optimization.max_epoch = -1  # 0 is no limit
        trainer.cfg.dataset.disable_validation = True
        note_update()
    elif trainer.checkpoint_without_optimizer:
        path = trainer.checkpoint_without_optimizer
        raise UserInputError(
            f"{path} was saved without optimizer state, so its training cannot be resumed. Use "
            f"--finetune-from-model {path} with another --save-dir."
        )
