"""Hooks of a training run: all that this package adds to fairseq's training loop.

The loop calls the trainer's methods for each update, epoch, validation, and checkpoint. One object
replaces these methods, so the order of what happens around a call is written in one place.
"""

from __future__ import annotations

import torch
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.utils import safe_getattr

from ..errors import UserInputError
from .kept_checkpoints import KeptCheckpoints, kept_updates
from .progress import early_stopping_state, note_update
from .segment_language_modeling import rows_per_process
from .shutdown import TrainingStopHandler, stop_after_this_update, stop_requested
from .training_record import TrainingRecord


class TrainingHooks:
    """Replacements for methods of a trainer and its task.

    :mod:`.patches.install_hooks` makes them when the checkpoint is loaded, after
    :func:`.start_record` has read the record in it. The hooks then fill that record.

    Args:
        trainer: fairseq's trainer before its first update.
        epochs: fairseq's iterator over the batches of the epoch to train next.
        stop_handler: of this process.
        record: record of the training; None if it trains no language model.
    """

    def __init__(
        self,
        trainer,
        epochs,
        stop_handler: TrainingStopHandler,
        record: TrainingRecord | None,
    ):
        self.trainer = trainer
        self.epochs = epochs
        self.stop_handler = stop_handler
        self.record = record
        self.kept = KeptCheckpoints(trainer, kept_updates())
        self.updates = trainer.get_num_updates()
        self._train_step = trainer.train_step
        self._get_train_iterator = trainer.get_train_iterator
        self._get_valid_iterator = trainer.get_valid_iterator
        self._save_checkpoint = trainer.save_checkpoint
        self._post_validate = getattr(trainer.task, "post_validate", None)
        trainer.train_step = self.train_step
        trainer.get_train_iterator = self.get_train_iterator
        trainer.get_valid_iterator = self.get_valid_iterator
        trainer.save_checkpoint = self.save_checkpoint
        trainer.task.post_validate = self.post_validate

    def train_step(self, samples, raise_oom=True):
        """Make an update, record it, and stop the loop if a signal has asked for it.

        After an overflow with ``--amp``, fairseq calls this method once more inside the first call.

        Args:
            samples: batches of the update.
            raise_oom: True, unlike in fairseq, which leaves out batches that do not fit, on one GPU
                the whole update. If none fits, it would train forever without an update.

        Raises:
            UserInputError: the GPU has too little memory for a batch.
        """
        self.kept.restore_intervals()
        before = self.trainer.get_num_updates()  # of this call, unlike self.updates
        with metrics.aggregate() as logged:
            try:
                output = self._train_step(samples, raise_oom)
            except torch.OutOfMemoryError as error:
                raise UserInputError(
                    f"The training ran out of GPU memory. {smaller_passes(self.trainer.cfg)}"
                ) from error
        updates = self.trainer.get_num_updates()
        if self.record is not None:
            self.record.note_memory(logged)
        if updates > self.updates:
            if self.record is not None:
                self.record.updated(update_tokens(logged, output["sample_size"]))
            note_update()
            self.kept.updated()
        elif updates == before:
            self.kept.skipped()
        self.updates = updates
        if stop_requested(self.stop_handler, self.trainer):
            stop_after_this_update(self.stop_handler, self.trainer, self.epochs)
        return output

    def get_train_iterator(self, *arguments, **keywords):
        """Return the batches of an epoch, and note which epoch is next."""
        self.epochs = self._get_train_iterator(*arguments, **keywords)
        return self.epochs

    def get_valid_iterator(self, subset, *arguments, **keywords):
        """Return the batches of a split, and note that it is validated next."""
        if self.record is not None:
            self.record.subset = subset
        return self._get_valid_iterator(subset, *arguments, **keywords)

    def post_validate(self, model, stats, meters) -> None:
        """Record a validation, then do what the task does after one."""
        if self.record is not None:
            loss = meters.get("nll_loss") or meters["loss"]  # in bits, and weighted by tokens
            self.record.validated(float(loss.avg), int(loss.count))
        if self._post_validate is not None:
            self._post_validate(model, stats, meters)

    def save_checkpoint(self, filename, extra_state):
        """Save a checkpoint with the record so far, and keep it if it is one to keep."""
        extra_state = extra_state | early_stopping_state(self.trainer.cfg.checkpoint.patience)
        if self.record is not None:
            extra_state = extra_state | self.record.extra_state()
        path = self._save_checkpoint(filename, extra_state)
        self.kept.saved(filename)
        return path


def update_tokens(logged: MetersDict, sample_size: float) -> int:
    """Return the tokens of an update in all processes.

    Args:
        logged: what fairseq logged during the update. It calls the tokens words per batch (wpb).
        sample_size: counts if the criterion does not log tokens. With ``--sentence-avg``, it is the
            number of sequences.
    """
    if "wpb" in logged:
        return int(logged["wpb"].avg)
    return int(sample_size)


def smaller_passes(cfg) -> str:
    """Return advice on passes that need less memory, with the same sequences per update.

    Args:
        cfg: fairseq's configuration of the training.
    """
    data = cfg.dataset
    length = safe_getattr(cfg.task, "tokens_per_sample") or 1  # other tasks: count the tokens

    def sequences(n: int) -> int:
        """Return the sequences of a pass after the options are divided by n."""
        return rows_per_process(
            length,
            data.max_tokens and data.max_tokens // n,
            data.batch_size and data.batch_size // n,
            data.required_batch_size_multiple,
        )

    if sequences(1) == 1:
        return (
            "A pass is already a single sequence. Recompute activations with "
            "--checkpoint-activations, or train at a smaller --tokens-per-sample."
        )
    n = next(n for n in range(2, sequences(1) + 1) if n * sequences(n) == sequences(1))
    flags = {"--max-tokens": data.max_tokens, "--batch-size": data.batch_size}
    divided = " and ".join(flag for flag, value in flags.items() if value)
    return (
        f"Divide {divided} by {n} and multiply --update-freq by {n}; in a comparison, multiply "
        f"batches_per_update by {n} instead."
    )
