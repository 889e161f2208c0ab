"""Progress of a training run: the limits it has reached, and proof that it made an update."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserInputError

#: Variable that names a file. A training creates it when it has made an update or has none left.
_UPDATED = "ALIBI_FAIRSEQ_UPDATED"
#: Key in a checkpoint's ``extra_state``: the best validation for ``--patience``, and the number of
#: validations since then.
_EARLY_STOPPING = "early_stopping"


def is_finished(trainer, epochs) -> bool:
    """Return True if ``--max-update``, ``--max-epoch`` or ``--patience`` has been reached.

    The same is true at ``--stop-min-lr``, which fairseq compares only before an epoch and when a
    training resumes.

    Args:
        trainer: fairseq's trainer.
        epochs: fairseq's iterator over the batches of the epoch to train next.
    """
    limits = trainer.cfg.optimization
    updates = trainer.get_num_updates()
    if limits.max_update and updates >= limits.max_update:
        return True
    if updates and trainer.get_lr() <= limits.stop_min_lr:
        return True
    patience = trainer.cfg.checkpoint.patience
    if 0 < patience <= _early_stopping().get("num_runs", 0):
        return True
    return bool(limits.max_epoch) and epochs.next_epoch_idx > limits.max_epoch


def early_stopping_state(patience: int) -> dict:
    """Return what a checkpoint saves for ``--patience``, whose count fairseq does not save."""
    return {_EARLY_STOPPING: dict(_early_stopping())} if patience > 0 else {}


def restore_early_stopping(extra_state: dict | None) -> None:
    """Continue the count of ``--patience`` in a checkpoint; begin anew without one.

    fairseq counts anew in every process, so that a rerun of a training that has ended would train
    on and replace its checkpoints (not reported upstream).
    """
    count = _early_stopping()
    count.clear()
    count.update((extra_state or {}).get(_EARLY_STOPPING, {}))


def _early_stopping() -> dict:
    """Return the attributes of fairseq's function that counts validations for ``--patience``."""
    for module in ("__main__", "fairseq_cli.train"):  # the former after python -m
        count = getattr(sys.modules.get(module), "should_stop_early", None)
        if count is not None:
            return vars(count)
    return {}


def note_update() -> None:
    """Tell :func:`updates_expected`, which may run in a parent process, about an update."""
    path = os.environ.pop(_UPDATED, None)
    if path:
        Path(path).touch()


@contextmanager
def updates_expected(stop_requested: Callable[[], bool]) -> Iterator[None]:
    """Check that a training inside the block, in this process or in its children, makes an update.

    fairseq returns normally from a training run that it could not start.

    Args:
        stop_requested: returns True if a signal has asked the training to stop.

    Raises:
        UserInputError: the training made no update, had some to make, and no signal stopped it.
    """
    with tempfile.TemporaryDirectory(prefix="alibi-fairseq-") as folder:
        updated = Path(folder) / "updated"
        os.environ[_UPDATED] = str(updated)
        try:
            yield
        finally:
            os.environ.pop(_UPDATED, None)
        if not updated.exists() and not stop_requested():
            raise UserInputError(
                "The training ended without an update. See fairseq's messages above for the "
                "reason, or check that --distributed-init-method leaves a process to train."
            )
