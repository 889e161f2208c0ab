"""Workarounds for data loading that waits forever when one of its processes fails.

fairseq reads batches from the processes of torch's ``DataLoader`` in a separate thread. The loop of
the command waits for that thread without a time limit (no issue is known).
"""

from __future__ import annotations

import multiprocessing.queues
import os
import queue
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from fairseq.data import iterators
from torch.utils.data import get_worker_info

from ..errors import UserInputError
from ..training import shutdown
from . import patch_method

#: Seconds to wait for a batch after a signal that asks to stop.
PATIENCE = 10
#: Seconds between checks for a signal while waiting for a batch.
_INTERVAL = 0.5

_CHECKPOINTS = (
    "Checkpoints written before are valid, and the same command resumes from the last one."
)


class InterruptibleQueue(queue.Queue):
    """Queue whose waiting reader obeys a request to stop."""

    def get(self, block: bool = True, timeout: float | None = None):
        """Return the next item.

        Raises:
            UserInputError: a signal asked this process to stop, and no item has arrived in
                ``PATIENCE`` seconds of waiting after it.
        """
        if not block or timeout is not None:
            return super().get(block, timeout)
        waited = 0.0
        while True:
            began = time.monotonic()
            try:
                return super().get(timeout=_INTERVAL)
            except queue.Empty:
                pass
            request = shutdown.current_request()
            if request.signal is None:
                continue
            waited += time.monotonic() - began
            if waited >= PATIENCE:
                raise UserInputError(
                    f"{request.signal.name}: stopping without saving, since no batch of data has "
                    f"arrived for {PATIENCE} seconds. {_CHECKPOINTS}"
                )


@patch_method(iterators.BufferedIterator, "__init__")
def wait_interruptibly(init, self, size, iterable):
    """Let a signal end the wait for a batch.

    fairseq's loop ignores signals while it waits (no issue is known).
    """
    init(self, size, iterable)
    self._queue = InterruptibleQueue(size)


@patch_method(iterators.BufferedIterator, "__next__")
def explain_failed_loading(read, self):
    """Name the likely reasons for the end of a process that loads data.

    A process that was killed, or has no file descriptors left, ends the command with an error about
    torch's internals (no issue is known).
    """
    try:
        return read(self)
    except (OSError, EOFError, RuntimeError) as error:
        message = " ".join(str(error).split())
        torch_errors = ("DataLoader worker (pid", "ancdata", "shared memory")
        from_torch = any(part in message for part in torch_errors)
        if isinstance(error, RuntimeError) and not from_torch:
            raise
        raise UserInputError(
            f"A process that loads data failed ({message[:200] or type(error).__name__}). It may "
            "have been killed for lack of memory, or reached the limit of open files (ulimit -n). "
            f"Lower --num-workers; 0 loads data without processes. {_CHECKPOINTS}"
        ) from error


@patch_method(iterators.EpochBatchIterator, "__init__")
def end_failed_workers(init, self, dataset, collate_fn, *arguments, **keywords):
    """End a process of torch's ``DataLoader`` that cannot send a batch, which torch notices.

    Without file descriptors, for instance, torch drops the batch, and the reader waits for it
    forever (pytorch/pytorch#25691).
    """
    init(self, dataset, partial(_collate, collate_fn), *arguments, **keywords)


def _collate(collate: Callable, samples: list):
    if get_worker_info() is not None:  # in a process of the loader
        # Both are called by threads that send batches, and that continue afterwards.
        sys.excepthook = _end_process
        queue_type = multiprocessing.queues.Queue
        queue_type._on_queue_feeder_error = staticmethod(_end_of_feeder)  # type: ignore[attr-defined]
    return collate(samples)


def _end_of_feeder(error: Exception, batch: object) -> None:
    _end_process(type(error), error, error.__traceback__)


def _end_process(kind, error, trace) -> None:
    traceback.print_exception(kind, error, trace)
    sys.stderr.flush()
    os._exit(1)
