"""Checkpoints that a training keeps after given numbers of updates: ``--keep-at``.

fairseq saves at multiples of one interval, and keeps the last few of them. A training that is
evaluated after other numbers of updates saves after them as well, under ``checkpoint_UPDATES.pt``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import UserInputError
from ..files import link_or_copy
from ..results.file_names import LAST_CHECKPOINT, kept_checkpoint

#: Environment variable with the update counts, which processes that fairseq starts inherit.
KEEP_AT = "ALIBI_KEEP_AT"


def kept_updates(environment: Mapping[str, str] = os.environ) -> frozenset[int]:
    """Return the numbers of updates after which this training keeps a checkpoint."""
    counts = environment.get(KEEP_AT, "")
    return frozenset(int(count) for count in counts.split(",") if count)


def check_kept_updates(
    updates: frozenset[int],
    max_update: int,
    validate_after_updates: int,
    no_save: bool,
    no_last_checkpoints: bool,
) -> None:
    """Check that a training saves after the numbers of updates at which it keeps a checkpoint.

    Args:
        updates: the numbers of updates.
        max_update, validate_after_updates, no_save, no_last_checkpoints: options of fairseq; 0
            updates are no limit.

    Raises:
        UserInputError: fairseq would save no checkpoint after one of them.
    """
    if updates and no_save:
        raise UserInputError("--keep-at keeps nothing with --no-save. Remove one of the two.")
    if updates and no_last_checkpoints:
        raise UserInputError(
            "--keep-at may keep nothing at the end of an epoch with --no-last-checkpoints. Remove "
            "one of the two."
        )
    for count in sorted(updates):
        if 0 < max_update < count:
            raise UserInputError(
                f"--keep-at {count} is after the last update, --max-update {max_update}. Correct "
                "one of the two."
            )
        if count < validate_after_updates and count != max_update:
            raise UserInputError(
                f"--keep-at {count} keeps nothing, because fairseq saves only from "
                f"--validate-after-updates {validate_after_updates} on. Correct one of the two."
            )


class KeptCheckpoints:
    """Saves and keeps the checkpoints of a training at given numbers of updates.

    Args:
        trainer: fairseq's trainer before its first update.
        updates: the numbers of updates.
    """

    def __init__(self, trainer, updates: frozenset[int]):
        self._trainer = trainer
        self._updates = updates
        self._interval = trainer.cfg.checkpoint.save_interval_updates
        self._validation_interval = trainer.cfg.dataset.validate_interval_updates
        # A training that was killed right after it saved has no copy yet.
        last = self._folder / LAST_CHECKPOINT
        if trainer.get_num_updates() in updates and last.is_file():
            self._copy(last)

    @property
    def _folder(self) -> Path:
        return Path(self._trainer.cfg.checkpoint.save_dir)

    def updated(self) -> None:
        """Let fairseq's loop validate and save after the current update if it is one to keep."""
        updates = self._trainer.get_num_updates()
        saving = self._trainer.cfg.checkpoint
        saving.save_interval_updates = updates if updates in self._updates else self._interval

    def skipped(self) -> None:
        """Let fairseq's loop neither validate nor save after an update that was left out.

        One that overflows in half precision leaves the number of updates as it was. If that is a
        multiple of an interval, fairseq would validate and save again, and ``--patience`` would
        count a validation without improvement (not reported upstream). At the end of an epoch, it
        still does.
        """
        self._trainer.cfg.checkpoint.save_interval_updates = 0
        self._trainer.cfg.dataset.validate_interval_updates = 0

    def restore_intervals(self) -> None:
        """Restore the intervals, before a checkpoint contains them and before each update.

        Only one process saves, and all must decide alike after an update. By the interval of an
        update to keep, fairseq would also save ``checkpoint_EPOCH_UPDATES.pt``, and remove an older
        one with ``--keep-interval-updates``.
        """
        self._trainer.cfg.checkpoint.save_interval_updates = self._interval
        self._trainer.cfg.dataset.validate_interval_updates = self._validation_interval

    def saved(self, path: str) -> None:
        """Keep a checkpoint that was just saved, if it is one to keep.

        A failed update saves ``crash.pt``, or leaves that of an earlier training.
        """
        if Path(path).name == "crash.pt":
            return
        if self._trainer.get_num_updates() in self._updates and Path(path).is_file():
            self._copy(Path(path))

    def _copy(self, path: Path) -> None:
        """Give a checkpoint its name by the number of updates.

        A file of that name may be of an earlier training in the same folder. Other processes
        wait, so 16 GB are only copied where the file system has no links.
        """
        if not self._trainer.is_data_parallel_master:
            return
        link_or_copy(path, self._folder / kept_checkpoint(self._trainer.get_num_updates()))
