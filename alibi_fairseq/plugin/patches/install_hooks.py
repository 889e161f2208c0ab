"""Calls of this package's checks and hooks from fairseq's commands and training loop."""

from __future__ import annotations

import inspect
import sys
from argparse import Namespace
from pathlib import Path

from fairseq import checkpoint_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq_cli import generate

from ...results.file_names import LAST_CHECKPOINT
from ...results.series import SERIES_KEY
from .. import progress, save_dir, shutdown, startup_checks
from ..data_position import check_same_text
from ..hooks import TrainingHooks
from ..segment_dataset import SegmentIterator
from ..training_record import start_record
from . import distributed, patch_method
from .resumed_training import skip_finished_training, warn_of_mixed_precision
from .safe_loading import replace_eval_in_fairseq


@patch_method(distributed_utils, "call_main")
def check_and_call_main(call_main, cfg, main, **keywords):
    """Check what fairseq does not, between reading the options and starting the command.

    A training run that ends without an update is an error (:mod:`..progress`). One that saved
    and stopped because of a signal exits with code 75 (:mod:`..shutdown`).
    """
    program = Path(inspect.getfile(main)).stem
    check_command(cfg, program)
    if program != "train":
        return call_main(cfg, main, **keywords)
    with (
        save_dir.lock_save_dir(cfg.checkpoint.save_dir, distributed.process_rank(cfg)),
        shutdown.listening() as handler,
        progress.updates_expected(lambda: handler.signal is not None),
    ):
        result = call_main(cfg, main, **keywords)
    shutdown.exit_if_stopped_early(handler, saves=not cfg.checkpoint.no_save)
    return result


def check_and_generate(main, cfg):
    """Check what fairseq does not before ``fairseq-generate``, which doesn't use ``call_main``."""
    if isinstance(cfg, Namespace):
        cfg = convert_namespace_to_omegaconf(cfg)
    check_command(cfg, "generate")
    return main(cfg)


for module in (generate, sys.modules["__main__"]):  # python -m fairseq_cli.generate
    if getattr(module, "__file__", None) == generate.__file__:
        patch_method(module, "main")(check_and_generate)


def check_command(cfg, program: str) -> None:
    """Check the options of a command, and set how many processes work together."""
    replace_eval_in_fairseq()  # in modules imported since
    startup_checks.check(cfg, program)
    distributed.join(cfg, program)


@patch_method(checkpoint_utils, "load_checkpoint")
def load_checkpoint_and_add_to_loop(load_checkpoint, cfg, trainer, **keywords):
    """Add the training record and the response to signals to fairseq's training loop.

    Loading the checkpoint is the last call before the loop that is given the trainer. fairseq's
    loop handles no signals, so a run that a cluster ends loses the updates after its last
    checkpoint (not reported upstream).
    """
    if trainer.data_parallel_rank == 0 and cfg.restore_file == LAST_CHECKPOINT:
        save_dir.repair_last_checkpoint(cfg.save_dir, trainer.checkpoint_suffix)
    if trainer.data_parallel_world_size > 1:
        distributed.meet(trainer.is_data_parallel_master)
    extra_state, epochs = load_checkpoint(cfg, trainer, **keywords)
    warn_of_mixed_precision(trainer)
    resumed = trainer.get_num_updates() > 0 and not cfg.reset_meters
    progress.restore_early_stopping(extra_state if resumed else None)
    record = start_record(trainer, extra_state)
    series = record.series if record is not None else None
    saved = (extra_state or {}).get(SERIES_KEY)
    if series is not None and saved is not None and epochs.iterations_in_epoch > 0:
        check_same_text(saved, series, trainer.cfg.task.data)
    # It has hashed the data for its record, which takes minutes for a large text.
    if trainer.data_parallel_world_size > 1:
        distributed.wait_for_first_process(trainer.is_data_parallel_master)
    trainer.hooks = TrainingHooks(trainer, epochs, shutdown.start_stop_handler(), record)
    skip_finished_training(trainer, epochs)
    return extra_state, epochs


@patch_method(checkpoint_utils, "save_checkpoint")
def prepare_and_save(save_checkpoint, cfg, trainer, epochs, val_loss):
    """Save a checkpoint under the names that the options ask for, with the memory of all processes.

    Only the first process saves. fairseq's loop calls this in all of them, also without a
    validation.
    """
    trainer.hooks.kept.restore_intervals()
    if isinstance(epochs, SegmentIterator) and not cfg.no_save:
        epochs.memory.gather()
    path = save_checkpoint(cfg, trainer, epochs, val_loss)
    record = trainer.hooks.record
    if record is not None:
        record.saved()
    return path
