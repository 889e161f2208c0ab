"""Progress of a training run: the limits it has reached, and proof that it made an update."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UserInputError

#: Variable that names a file. A training creates it when it has made an update or has none left.
_UPDATED = "ALIBI_FAIRSEQ_UPDATED"


def is_finished(trainer, epochs) -> bool:
    """Return True if ``--max-update`` or ``--max-epoch`` has been reached.

    Args:
        trainer: fairseq's trainer.
        epochs: fairseq's iterator over the batches of the epoch to train next.
    """
    limits = trainer.cfg.optimization
    if limits.max_update and trainer.get_num_updates() >= limits.max_update:
        return True
    return bool(limits.max_epoch) and epochs.next_epoch_idx > limits.max_epoch


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
