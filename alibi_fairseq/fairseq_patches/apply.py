"""Puts every workaround in place; here stand those for commands as a whole, and for NumPy, hydra and logging."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import types
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy
import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import language_pair_dataset, token_block_dataset
from fairseq.distributed import utils as distributed_utils

from ..checkpoints.loading import wrong_parts
from ..errors import FOLDER, PACKAGE, UserInputError, is_command, option_errors
from . import byte_pieces, data_loading, datasets, patch_method, resume, shutdown, startup  # noqa: F401
from .safe_loading import no_eval_in_fairseq
from .training_record import record


@patch_method(distributed_utils, "call_main")
def checked_before_start(call_main, cfg, main, **keywords):
    """Between reading the options and starting, check what fairseq does not (:mod:`.starting`).

    A training that ends without an update is an error. One that saved and stopped because of a
    signal exits with code 75 (:mod:`.stopping`).
    """
    no_eval_in_fairseq()  # modules imported since
    program = Path(inspect.getfile(main)).stem
    startup.check(cfg, program)
    startup.join(cfg, program)
    if program != "train":
        with option_errors():
            return call_main(cfg, main, **keywords)
    save_dir = cfg.checkpoint.save_dir
    with (
        resume.lock_save_dir(save_dir, startup.rank_of(cfg)),
        shutdown.listening() as request,
        shutdown.updates_expected(request),
    ):
        result = call_main(cfg, main, **keywords)
    if code := shutdown.exit_code(request):
        raise SystemExit(code)
    return result


@patch_method(checkpoint_utils, "load_checkpoint")
def saving_on_a_signal(load_checkpoint, cfg, trainer, **keywords):
    """fairseq's loop handles no signals, so a run that a cluster ends loses what came after its last
    checkpoint; no release of fairseq does otherwise (:mod:`.stopping`).

    Loading the checkpoint is the last call before the loop that is given the trainer; a damaged one
    is replaced before (:mod:`.resuming`), and what is resumed is recorded
    (:mod:`.training_record`) there as well.
    """
    if trainer.data_parallel_rank == 0 and cfg.restore_file == "checkpoint_last.pt":
        resume.newest_whole_checkpoint(cfg.save_dir, trainer.checkpoint_suffix)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier()
    path = Path(cfg.save_dir) / cfg.restore_file
    with wrong_parts(path) if path.exists() else nullcontext():
        extra_state, epochs = load_checkpoint(cfg, trainer, **keywords)
    record(trainer, extra_state)
    shutdown.save_and_stop_on_request(trainer, epochs)
    shutdown.skip_finished_training(trainer, epochs, extra_state)
    return extra_state, epochs


@patch_method(utils, "import_user_module")
def this_package_as_user_dir(import_user_module, args):
    """fairseq compares the text of paths (facebookresearch/fairseq#2815): the folder this package
    was imported from is "not globally unique" when ``--user-dir`` leads there through a link.

    Raises:
        UserInputError: there is no such folder, or it is a second copy of this package.
    """
    folder = getattr(args, "user_dir", None)
    if folder is None or Path(folder).resolve() == FOLDER:
        return
    if Path(folder).name == PACKAGE:
        raise UserInputError(
            f"Two copies of {PACKAGE}: {FOLDER} is already imported and "
            f"--user-dir names {folder}; drop --user-dir or uninstall one of them."
        )
    try:
        import_user_module(args)
    except FileNotFoundError as error:
        if Path(folder).exists():  # it misses a file of its own
            raise
        raise UserInputError(f"--user-dir: there is no folder {folder}.") from error


def numpy_with_compat() -> None:
    """``np.compat`` is gone in NumPy 2 (numpy/numpy#28961), and fairseq uses it to cut text into
    sentences: ``fairseq-interactive``, ``score`` and ``sample`` fail without it.

    NumPy itself stays as it is.
    """
    if not hasattr(numpy, "compat"):
        module = types.ModuleType("numpy")
        vars(module)["__getattr__"] = partial(getattr, numpy)
        vars(module)["compat"] = types.SimpleNamespace(long=int)
        token_block_dataset.np = language_pair_dataset.np = module


def logging_as_configured() -> None:
    """Importing the models of fairseq 0.12.3 makes the root logger print everything to stderr
    (``wav2vec2_classification``), and a command's own configuration is then ignored (as in
    facebookresearch/fairseq#3592). Repeat what fairseq's commands do before they import this package.
    """
    root = logging.getLogger()
    formats = [getattr(handler.formatter, "_fmt", None) for handler in root.handlers]
    if root.level == logging.DEBUG and formats == [logging.BASIC_FORMAT] and is_command():
        logging.basicConfig(
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            stream=sys.stdout,
            force=True,
        )


def hydra_without_advice() -> None:
    """hydra since 1.1 advises on each form of 1.0 that fairseq still uses, in thirty lines at every
    start (facebookresearch/fairseq#4133), and one sentence about an error is lost among them.
    """
    if is_command():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
        advice = r"(?s)\s*('[^']*' is validated against|The version_base|Future Hydra versions)"
        warnings.filterwarnings("ignore", advice, UserWarning)


numpy_with_compat()
logging_as_configured()
hydra_without_advice()
