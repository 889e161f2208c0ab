"""Ends a training: saves and stops when it receives a signal, and parts the processes.

SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C only set a flag, which is read after each update
(``Trainer.train_step``, the innermost public method that every path through fairseq's loop calls).
All processes agree on it by summing their flags; the loop is then made to believe that its time is
up (``--stop-time-hours``), saves ``checkpoint_last.pt`` in the middle of the epoch and returns. The
command exits with code 75, and the same command resumes with the numbers of an uninterrupted run.

Longest delay between the signal and the start of the save: one update with all its passes, and the
validation that is due after it, if any; if a validation or another save is in progress, the rest of
it and one more update. A second Ctrl-C
interrupts at once and loses what came after the last checkpoint.
"""

from __future__ import annotations

import atexit
import gc
import logging
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq.distributed import utils as distributed_utils
from torch import distributed

from ..errors import STOPPED_EARLY, UserInputError, leave_terminal, option_errors

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


class TrainingStopHandler:
    """Which signal asked this process to stop, and whether its training has stopped because of it."""

    def __init__(self):
        self.signal: signal.Signals | None = None
        self.training = False
        self.stopped_early = False
        self._interrupts = 0

    def receive(self, number: int, frame=None) -> None:
        """Signal handler.

        Raises:
            KeyboardInterrupt: on the second Ctrl-C, or on the first before the training loop.
        """
        self.signal = self.signal or signal.Signals(number)
        if number == signal.SIGHUP:
            leave_terminal()
        children = [] if self.training else multiprocessing.active_children()
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1 or (number == signal.SIGINT and not self.training and not children):
            raise KeyboardInterrupt
        for child in children:  # torch.multiprocessing.spawn's, which train
            if child.pid:
                os.kill(child.pid, signal.SIGUSR1)

    def listen(self) -> None:
        """Handle ``SIGNALS``; only possible in the main thread, nothing happens in others."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                # nohup has switched SIGHUP off.
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, self.receive)


#: Of the command that runs in this process.
_current = TrainingStopHandler()


def current_request() -> TrainingStopHandler:
    """Return the request of the command that runs in this process."""
    return _current


@contextmanager
def listening() -> Iterator[TrainingStopHandler]:
    """Handle signals inside the block as above; afterwards they do what they did before."""
    global _current
    outer, _current = _current, TrainingStopHandler()
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        _current.listen()
        yield _current
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)
        _current = outer


#: Names a file that a training creates when it has made an update, or has none left to make.
_UPDATED = "ALIBI_FAIRSEQ_UPDATED"


def save_and_stop_on_request(trainer, epochs) -> None:
    """Make SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C end the trainer's loop after the current update.

    Also creates the file that :func:`updates_expected` looks for, after the first update.

    Args:
        epochs: fairseq's iterator over the batches of the epoch to train next.
    """
    global _current
    if _current.training:  # a second training in this process
        _current = TrainingStopHandler()
    request = _current
    request.listen()  # a process that torch.multiprocessing.spawn started does not listen yet
    request.training = True
    update, before = trainer.train_step, trainer.get_num_updates()
    get_iterator, current_epochs = trainer.get_train_iterator, epochs

    def get_train_iterator(*arguments, **keywords):
        nonlocal current_epochs
        current_epochs = get_iterator(*arguments, **keywords)
        return current_epochs

    def train_step(samples, raise_oom=False):
        output = update(samples, raise_oom)
        if trainer.get_num_updates() > before:
            _note_update()
        if stop_requested(request, trainer):
            stop_after_this_update(request, trainer, current_epochs)
        return output

    trainer.train_step, trainer.get_train_iterator = train_step, get_train_iterator


def skip_finished_training(trainer, epochs, extra_state: dict | None) -> None:
    """Leave a training alone whose checkpoint has reached one of its limits.

    fairseq compares with the limits after an update, so each rerun makes one more and saves it (no
    issue is known). Make its loop end before the first epoch.

    Args:
        extra_state: of the checkpoint that the trainer has loaded; None without one.
    """
    limits, seconds = trainer.cfg.optimization, (extra_state or {}).get("previous_training_time", 0)
    hours_are_up = 0 < limits.stop_time_hours < seconds / 3600
    rate_is_low = trainer.get_lr() <= limits.stop_min_lr
    resumed = trainer.get_num_updates() > 0
    if is_finished(trainer, epochs) or (resumed and (hours_are_up or rate_is_low)):
        updates = trainer.get_num_updates()
        logger.info(f"nothing to train: this checkpoint has made all of its {updates} updates")
        limits.max_epoch = -1  # 0 is no limit
        trainer.cfg.dataset.disable_validation = True
        _note_update()


def is_finished(trainer, epochs) -> bool:
    """Return True if ``--max-update`` or ``--max-epoch`` has been reached."""
    limits = trainer.cfg.optimization
    updates = trainer.get_num_updates()
    return updates >= (limits.max_update or math.inf) or epochs.next_epoch_idx > (
        limits.max_epoch or math.inf
    )


def _note_update() -> None:
    if path := os.environ.pop(_UPDATED, None):
        Path(path).touch()


@contextmanager
def updates_expected(request: TrainingStopHandler) -> Iterator[None]:
    """Check that a training inside the block, in this process or in its children, makes an update.

    fairseq returns as if all were well from a training that it could not start.

    Raises:
        UserInputError: it made none, had some to make, and no signal asked it to stop.
    """
    with tempfile.TemporaryDirectory(prefix="alibi-fairseq-") as folder:
        updated = Path(folder) / "updated"
        os.environ[_UPDATED] = str(updated)
        try:
            yield
        except Exception as error:
            if updated.exists():
                raise
            with option_errors():
                raise error
        finally:
            os.environ.pop(_UPDATED, None)
        if not updated.exists() and request.signal is None:
            raise UserInputError(
                "The training ended without an update; fairseq's messages above say why, or "
                "--distributed-init-method leaves no process to train."
            )


def stop_requested(request: TrainingStopHandler, trainer) -> bool:
    """Return whether any process of the run was asked to stop, the same in all of them."""
    if trainer.data_parallel_world_size == 1:
        return request.signal is not None
    requests = torch.tensor([float(request.signal is not None)], device=trainer.device)
    distributed_utils.all_reduce(requests, group=trainer.data_parallel_process_group)
    return requests.item() > 0


def stop_after_this_update(request: TrainingStopHandler, trainer, epochs) -> None:
    """Tell the loop that its time is up.

    fairseq validates before it saves. It does so now only if an undisturbed run would, since the
    resumed run does not repeat this update.
    """
    updates = trainer.get_num_updates()
    request.stopped_early = not is_finished(trainer, epochs)
    if not validation_is_due(trainer, epochs):
        trainer.cfg.dataset.disable_validation = True
    trainer.cfg.optimization.stop_time_hours = 1e-9
    reason = request.signal.name if request.signal else "a signal to another process"
    logger.info(
        f"stopping because of {reason}: saving after update {updates}; run the same command to resume"
    )


def validation_is_due(trainer, epochs) -> bool:
    """Return True if fairseq validates after the current update without being stopped.

    As in ``validate_and_save`` of ``fairseq_cli/train.py``.
    """
    updates, data = trainer.get_num_updates(), trainer.cfg.dataset
    if updates < data.validate_after_updates:
        return False
    if is_finished(trainer, epochs):
        return True
    if data.validate_interval_updates > 0 and updates % data.validate_interval_updates == 0:
        return True
    if epochs.end_of_epoch():
        return epochs.epoch % data.validate_interval == 0
    interval = trainer.cfg.checkpoint.save_interval_updates
    return interval > 0 and updates % interval == 0


def exit_code(request: TrainingStopHandler, environment: Mapping[str, str] = os.environ) -> int:
    """Exit code of a training command that returned.

    A worker of torchrun exits with 0, since torchrun starts its workers again after any other code.
    """
    spawned = request.signal is not None and not request.training
    if "TORCHELASTIC_RUN_ID" in environment or not (request.stopped_early or spawned):
        return 0
    return STOPPED_EARLY


@atexit.register
def destroy_process_groups() -> None:
    """fairseq never destroys its process groups, so that gloo's threads outlive the interpreter and
    abort the process now and then (pytorch/pytorch#179291). Destroy them, and the threads with them.

    The threads need the interpreter lock to drop the tensors of finished collectives. Where the
    interpreter is shutting down, asking for it ends them in C++ code that cannot be unwound, and
    the process dies (SIGABRT). A group ends when nothing refers to it: fairseq's cache, the frames
    of an uncaught exception, and DDP's reducer, which is freed with the lock held and would wait
    for threads that wait for the lock.
    """
    cached = vars(distributed_utils.get_global_group)
    if not distributed.is_initialized() or "_global_group" not in cached:
        return
    error = getattr(sys, "last_value", None)  # the uncaught exception
    if error is not None and distributed.get_backend() != "gloo":
        return  # NCCL would wait for processes that failed
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    groups = [cached.pop("_global_group"), distributed.group.WORLD]
    distributed.destroy_process_group()
    gc.collect()  # the reducers
    groups.clear()  # releases the lock while it waits
