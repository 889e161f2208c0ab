"""Applies every workaround; here stand those for commands as a whole, and for NumPy, hydra and logging."""

from __future__ import annotations

import inspect
import logging
import os
import sys
import types
import warnings
from contextlib import nullcontext
from pathlib import Path

import hydra
import numpy
import torch
from fairseq import checkpoint_utils, models, utils
from fairseq.data import language_pair_dataset, token_block_dataset
from fairseq.distributed import utils as distributed_utils

from ..checkpoints.loading import wrong_parts
from ..errors import BadInput
from . import (
    WORKAROUNDS,
    around,
    invocation,
    mentions,
    reading_data,  # noqa: F401
    resuming,
    starting,
    stopping,
    workaround,
)
from .loading_safely import no_eval_in_fairseq
from .training_record import record

applied: list[str] = []


def apply() -> None:
    """Apply every workaround that is needed, and note its name in ``applied``."""
    applied.extend(each.__name__ for each in WORKAROUNDS if each())


@around(distributed_utils, "call_main")
def checked_before_start(call_main, cfg, main, **keywords):
    """Between reading the options and starting, check what fairseq does not (:mod:`.starting`).

    A training that ends without an update is an error. One that saved and stopped because of a
    signal exits with code 75 (:mod:`.stopping`).
    """
    no_eval_in_fairseq()  # modules imported since
    program = Path(inspect.getfile(main)).stem
    starting.check(cfg, program)
    starting.join(cfg, program)
    if program != "train":
        return call_main(cfg, main, **keywords)
    save_dir = cfg.checkpoint.save_dir
    with (
        resuming.alone_in(save_dir, starting.rank_of(cfg)),
        stopping.listening() as request,
        stopping.updates_expected(request),
    ):
        result = call_main(cfg, main, **keywords)
    if code := stopping.exit_code(request):
        raise SystemExit(code)
    return result


@around(checkpoint_utils, "load_checkpoint")
def saving_on_a_signal(load_checkpoint, cfg, trainer, **keywords):
    """fairseq's loop handles no signals, so a run that a cluster ends loses what came after its last
    checkpoint; no release of fairseq does otherwise (:mod:`.stopping`).

    Loading the checkpoint is the last call before the loop that is given the trainer; a damaged one
    is replaced before, what is resumed is checked (:mod:`.resuming`), and recorded
    (:mod:`.training_record`) there as well.
    """
    if trainer.data_parallel_rank == 0 and cfg.restore_file == "checkpoint_last.pt":
        resuming.newest_whole_checkpoint(cfg.save_dir, trainer.checkpoint_suffix)
    if trainer.data_parallel_world_size > 1:
        torch.distributed.barrier()
    path = Path(cfg.save_dir) / cfg.restore_file
    with resuming.resuming(trainer, cfg), wrong_parts(path) if path.exists() else nullcontext():
        extra_state, epochs = load_checkpoint(cfg, trainer, **keywords)
    record(trainer, extra_state)
    stopping.save_and_stop_on_request(trainer, epochs)
    return extra_state, epochs


@around(models, "build_model")
def unknown_model_named(build_model, cfg, *arguments, **keywords):
    """fairseq's message about a model that is not registered fails while it is made, with an
    AttributeError in 0.12 (``build_model``).
    """
    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    if name and name not in {**models.ARCH_MODEL_REGISTRY, **models.MODEL_REGISTRY}:
        raise BadInput(
            f"There is no model '{name}'; if another plugin defines it, name that plugin with "
            "--user-dir."
        )
    return build_model(cfg, *arguments, **keywords)


@around(utils, "import_user_module")
def this_package_as_user_dir(import_user_module, args):
    """fairseq compares the text of paths (facebookresearch/fairseq#2815): the folder this package
    was imported from is "not globally unique" when ``--user-dir`` leads there through a link.

    A second copy is refused, whichever was imported first.
    """
    folder = getattr(args, "user_dir", None)
    if folder is None or not invocation.is_this_package(folder):
        import_user_module(args)


@workaround
def numpy_without_compat() -> bool:
    """``np.compat`` is gone in NumPy 2 (numpy/numpy#28961), and fairseq uses it to cut text into
    sentences: ``fairseq-interactive``, ``score`` and ``sample`` fail without it.
    """
    modules = [
        module
        for module in (token_block_dataset, language_pair_dataset)
        if mentions(module, "np.compat") and not hasattr(module.np, "compat")
    ]
    for module in modules:
        module.np = _NumpyWithCompat("numpy")
    return bool(modules)


class _NumpyWithCompat(types.ModuleType):
    """NumPy as fairseq's modules expect it; NumPy itself stays as it is."""

    compat = types.SimpleNamespace(long=int)

    def __getattr__(self, name):
        return getattr(numpy, name)


@workaround
def logging_as_configured() -> bool:
    """Importing fairseq's models makes the root logger print everything to stderr
    (``wav2vec2_classification``), and the command's own configuration is then ignored (as in
    facebookresearch/fairseq#3592). Undo the former, repeat the latter.
    """
    culprit = sys.modules.get("fairseq.models.wav2vec.wav2vec2_classification")  # since 0.12.3
    root = logging.getLogger()
    by_import = (
        culprit is not None
        and mentions(culprit, "logging.basicConfig(level=logging.DEBUG)")
        and root.level == logging.DEBUG
        and [getattr(h.formatter, "_fmt", None) for h in root.handlers] == [logging.BASIC_FORMAT]
        and (invocation.fairseq_imported_here or invocation.is_command())
    )
    if not by_import:
        return False
    root.removeHandler(root.handlers[0])
    root.setLevel(logging.WARNING)
    if not invocation.fairseq_imported_here:
        logging.basicConfig(
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            stream=sys.stdout,
        )
    return True


@workaround
def hydra_without_advice() -> bool:
    """hydra since 1.1 advises on each form of 1.0 that fairseq still uses, in thirty lines at every
    start (facebookresearch/fairseq#4133), and one sentence about an error is lost among them.
    """
    if not invocation.is_command() or hydra.__version__.startswith("1.0."):
        return False
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.")
    for message in (
        r"\s*'[^']*' is validated against ConfigStore schema",
        r"\s*The version_base parameter is not specified",
        r"\s*Future Hydra versions will no longer change working directory",
    ):
        warnings.filterwarnings("ignore", message, UserWarning)
    return True
