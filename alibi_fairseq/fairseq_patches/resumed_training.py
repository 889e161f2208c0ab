"""Workarounds for trainings that are resumed or run again."""

from __future__ import annotations

import logging

from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer

from ..training.progress import is_finished, note_update
from ..training.resume import loading_into
from . import patch_method

logger = logging.getLogger(__name__)


@patch_method(FairseqTask, "get_batch_iterator")
def make_batches_of_first_epoch(get, task, dataset, *arguments, epoch=1, **keywords):
    """Make the batches of a resumed training as in its first epoch.

    fairseq makes the batches once, 0.12.3 from the seed and the epoch in which the process began,
    and shuffles their order in each epoch. A run that is resumed in its second epoch or later thus
    has other batches. For the rest of that epoch it reads some samples twice and others not at all
    (no issue is known).

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


@patch_method(Trainer, "load_checkpoint")
def check_model_while_loading(load, trainer, path, reset_optimizer=False, *arguments, **keywords):
    """Compare the checkpoint's model and dictionary with those of the command.

    fairseq loads the weights into whatever the command line describes (:mod:`..training.resume`; no
    issue is known). With ``--reset-optimizer`` or ``--finetune-from-model`` a new training starts,
    and options may differ.
    """
    with loading_into(trainer, resumes=not reset_optimizer):
        return load(trainer, path, reset_optimizer, *arguments, **keywords)


def skip_finished_training(trainer, epochs, extra_state: dict | None) -> None:
    """End the loop of a training that has reached one of its limits before its first epoch.

    fairseq compares with the limits after an update, so that each rerun makes one more and saves it
    (no issue is known).

    Args:
        trainer: fairseq's trainer.
        epochs: fairseq's iterator over the batches of the epoch to train next.
        extra_state: of the checkpoint that the trainer has loaded; None without one.
    """
    limits = trainer.cfg.optimization
    updates = trainer.get_num_updates()
    seconds = (extra_state or {}).get("previous_training_time", 0)
    hours_are_up = 0 < limits.stop_time_hours < seconds / 3600
    rate_is_low = trainer.get_lr() <= limits.stop_min_lr
    resumed = updates > 0
    if is_finished(trainer, epochs) or (resumed and (hours_are_up or rate_is_low)):
        logger.info(f"nothing to train: this checkpoint has made all of its {updates} updates")
        limits.max_epoch = -1  # 0 is no limit
        trainer.cfg.dataset.disable_validation = True
        note_update()
