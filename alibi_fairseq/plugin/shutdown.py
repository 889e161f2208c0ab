"""Saves and stops a training run when it receives a signal.

SIGTERM, SIGHUP, SIGUSR1 and Ctrl-C only set a flag, which is read after each update
(``Trainer.train_step``, the innermost public method that every path through fairseq's loop calls).
All processes agree on it by summing their flags. The loop then finds its time used up
(``--stop-time-hours``), saves ``checkpoint_last.pt`` in the middle of the epoch, and returns. The
command exits with code 75, and the same command resumes. In fp32, ``--memory-efficient-fp16`` and
``--memory-efficient-bf16``, it has the numbers of an uninterrupted run. With ``--fp16`` and
``--bf16``, each resume rounds the weights to half precision, and with ``--amp``, it resets the loss
scale. The command also saves with ``--no-last-checkpoints``. With ``--no-save`` it exits with
code 1.

The longest delay between the signal and the start of the save is one update with all its passes,
and the validation that is due after it, if any. If a validation or another save is in progress, it
is the rest of that and one more update. A second Ctrl-C interrupts at once and loses the updates
after the last checkpoint.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq.distributed import utils as distributed_utils

from ..errors import EXIT_CODE_FILE, STOPPED_EARLY
from ..stop_signals import handle_stop_signals, set_stop_handler
from .progress import is_finished

logger = logging.getLogger(__name__)


class TrainingStopHandler:
    """Handler of stop signals in a process of fairseq, such as one that trains.

    The experiment that starts it has a stop request of its own, which it passes on as a signal.

    Attributes:
        signal: the first signal that asked this process to stop; None without one.
        training: True once the training loop is about to start.
        stopped_early: True if the loop stopped because of a signal, before its limits.
    """

    def __init__(self):
        self.signal: signal.Signals | None = None
        self.training = False
        self.stopped_early = False
        self._interrupts = 0

    def receive(self, number: int) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: on the second Ctrl-C, or on the first before the training loop.
        """
        self.signal = self.signal or signal.Signals(number)
        # Children of torch.multiprocessing.spawn train. Children of a training run load data.
        children = [] if self.training else multiprocessing.active_children()
        interrupt = number == signal.SIGINT
        if interrupt:
            self._interrupts += 1
        nothing_to_save = not self.training and not children
        if self._interrupts > 1 or (interrupt and nothing_to_save):
            raise KeyboardInterrupt
        for child in children:
            if child.pid:
                os.kill(child.pid, signal.SIGUSR1)


#: Stop handler of the command that runs in this process.
_current = TrainingStopHandler()


@contextmanager
def listening() -> Iterator[TrainingStopHandler]:
    """Handle signals inside the block, and restore their earlier handlers afterwards."""
    global _current
    outer = _current
    _current = TrainingStopHandler()
    try:
        with handle_stop_signals(_current.receive):
            yield _current
    finally:
        _current = outer


def start_stop_handler() -> TrainingStopHandler:
    """Return the stop handler of a training run that is about to start in this process.

    SIGTERM, SIGHUP, SIGUSR1, and Ctrl-C then end its loop after the current update.
    """
    global _current
    if _current.training:  # a second training in this process
        _current = TrainingStopHandler()
    # A process that torch.multiprocessing.spawn started does not listen yet.
    set_stop_handler(_current.receive)
    _current.training = True
    return _current


def stop_requested(handler: TrainingStopHandler, trainer) -> bool:
    """Return True, in all processes alike, if any process of the run was asked to stop."""
    if trainer.data_parallel_world_size == 1:
        return handler.signal is not None
    requests = torch.tensor([float(handler.signal is not None)], device=trainer.device)
    distributed_utils.all_reduce(requests, group=trainer.data_parallel_process_group)
    return requests.item() > 0


def stop_after_this_update(handler: TrainingStopHandler, trainer, epochs) -> None:
    """Use up the time limit of fairseq's loop.

    fairseq saves what ``--no-save`` and ``--no-last-checkpoints`` allow. The latter is disabled,
    since a rerun could not resume otherwise.

    fairseq validates before it saves. Here it does so only if an undisturbed run would, since the
    resumed run does not repeat this update.
    """
    updates = trainer.get_num_updates()
    handler.stopped_early = not is_finished(trainer, epochs)
    if not validation_is_due(trainer, epochs):
        trainer.cfg.dataset.disable_validation = True
    trainer.cfg.optimization.stop_time_hours = 1e-9
    reason = handler.signal.name if handler.signal else "a signal to another process"
    saving = trainer.cfg.checkpoint
    if saving.no_save:
        logger.info(
            f"stopping because of {reason}: nothing is saved after update {updates}, because of "
            "--no-save"
        )
        return
    saving.no_last_checkpoints = False
    logger.info(
        f"stopping because of {reason}: saving after update {updates}; run the same command to "
        "resume"
    )


def validation_is_due(trainer, epochs) -> bool:
    """Return True if fairseq validates after the current update without being stopped.

    The conditions are the same as in ``validate_and_save`` of ``fairseq_cli/train.py``.
    """
    updates = trainer.get_num_updates()
    data = trainer.cfg.dataset
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


def exit_if_stopped_early(
    handler: TrainingStopHandler,
    saves: bool = True,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Exit with code 75 if a signal stopped the training, or with 1 if nothing was saved.

    A worker of torchrun leaves the code to our launcher (``EXIT_CODE_FILE``), and returns.

    Args:
        handler: the stop handler of the command.
        saves: False with ``--no-save``, so that a rerun could not resume.
        environment: environment variables of this process.
    """
    spawned = handler.signal is not None and not handler.training
    if not (handler.stopped_early or spawned):
        return
    code = STOPPED_EARLY if saves else 1
    if "TORCHELASTIC_RUN_ID" not in environment:
        raise SystemExit(code)
    if EXIT_CODE_FILE in environment:
        Path(environment[EXIT_CODE_FILE]).write_text(str(code))
