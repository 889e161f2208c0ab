"""A training run that is told to stop saves first.

Clusters take machines back with a warning: a signal, then a minute or so. fairseq's loop looks at no
signals, so a run would lose everything since its last checkpoint. Here SIGTERM and SIGUSR1 only
leave a note. It is read after each update (``Trainer.train_step``, the innermost public place that
every position in the loop passes); all processes agree on it by adding their notes up, and then the
loop is told that its time is up (fairseq's ``--stop-time-hours``): it saves ``checkpoint_last.pt``
in the middle of the epoch and returns. The same command goes on from there, with the same numbers as
if nothing had happened.

Longest delay between the signal and the start of the save: one update with all its passes; when a
validation or another save is under way, what is left of it and one update more.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

logger = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class Note:
    """Which signal has come to this process, if any."""

    def __init__(self):
        self.signal: signal.Signals | None = None

    def write(self, number: int, frame=None) -> None:
        self.signal = signal.Signals(number)


def save_and_stop_when_told(trainer) -> None:
    """Let SIGTERM and SIGUSR1 end the trainer's loop after the update at hand, with a checkpoint.

    Args:
        trainer: fairseq's, before its first update.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may listen
    note = Note()
    for number in SIGNALS:
        signal.signal(number, note.write)
    update = trainer.train_step

    def train_step(samples, raise_oom=False):
        output = update(samples, raise_oom)
        if told_anywhere(note, trainer):
            stop_after_this_update(note, trainer)
        return output

    trainer.train_step = train_step


def told_anywhere(note: Note, trainer) -> bool:
    """Whether any process of the run has a note; the same answer in all of them."""
    if trainer.data_parallel_world_size == 1:
        return note.signal is not None
    from fairseq.distributed import utils as distributed_utils

    told = torch.tensor([float(note.signal is not None)], device=trainer.device)
    distributed_utils.all_reduce(told, group=trainer.data_parallel_process_group)
    return told.item() > 0


def stop_after_this_update(note: Note, trainer) -> None:
    """Tell the loop that its time is up; a validation would only take of what is left."""
    trainer.cfg.optimization.stop_time_hours = 1e-9
    trainer.cfg.dataset.disable_validation = True
    who = note.signal.name if note.signal else "another process"
    logger.info(
        f"{who} says to stop: saving after update {trainer.get_num_updates()}; "
        "the same command goes on from there"
    )


@contextmanager
def signals_as_before() -> Iterator[None]:
    """What the signals did before does them again when the block ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
