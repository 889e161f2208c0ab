"""Every workaround for fairseq, PyTorch and NumPy: one function each, naming its upstream issue.

:func:`apply` runs once, when this package registers with fairseq. Each workaround first checks
whether it is needed, changes nothing where it is not, and returns whether it changed something.
Nothing outside of fairseq's own modules is changed.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import sys
import types
import warnings
from pathlib import Path

import hydra
import numpy
import torch
from fairseq import checkpoint_utils, models, options, utils
from fairseq.data import language_pair_dataset, token_block_dataset
from fairseq.distributed import utils as distributed_utils

from . import invocation, preemption, preflight, process_groups, resuming, training_record, user_dir
from .checkpoints.loading import safe_types_allowed, wrong_parts
from .data_files import damaged_data_named, damaged_dictionaries_named, no_plasma
from .durability import newest_whole_checkpoint, whole_checkpoints, whole_checkpoints_or_none
from .errors import BadInput
from .hardening import (
    archives_extracted_safely,
    checkpoints_validated,
    meters_by_name_only,
    no_eval_in_fairseq,
    options_not_resolved,
)
from .last_batches import last_batch_kept
from .patching import mentions, run_within, wrap
from .resuming import same_batches_after_resuming

applied: list[str] = []


def apply() -> None:
    """Apply every workaround that is needed, and note its name in ``applied``."""
    applied.extend(workaround.__name__ for workaround in WORKAROUNDS if workaround())


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


def older_checkpoints() -> bool:
    """torch 2.6 loads only tensors and plain values by default, and checkpoints of
    older fairseq hold an ``argparse.Namespace`` (facebookresearch/fairseq#5610).

    Types that hold values and run no code are allowed while fairseq loads a checkpoint; everything
    else is still refused.
    """
    return _allow_safe_types(checkpoint_utils, "load_checkpoint_to_cpu")


def resuming_with_several_processes() -> bool:
    """The first process sends a checkpoint to the others as fairseq's and omegaconf's objects, which
    torch 2.6 refuses as well (facebookresearch/fairseq#5610), so no such run could be resumed.
    """
    placeholder = distributed_utils._TensorPlaceholder
    return _allow_safe_types(distributed_utils, "_broadcast_object_slow", placeholder)


def _allow_safe_types(module, name: str, *more: type) -> bool:
    old = torch.__version__ < (2, 6)  # type: ignore[operator]  # TorchVersion compares with tuples
    if old or mentions(getattr(module, name), "weights_only"):
        return False
    return run_within(module, name, lambda: safe_types_allowed(*more))


def bf16_without_tpu() -> bool:
    """``--bf16`` and ``--memory-efficient-bf16`` switch to TPUs, which crashes on every other device
    (facebookresearch/fairseq#4696). Only ``--tpu`` does that now.
    """
    if not mentions(options.parse_args_and_arch, "args.tpu = True"):
        return False

    def wrapper(parse, parser, input_args=None, **keywords):
        parsed = parse(parser, input_args, **keywords)
        args = parsed[0] if keywords.get("parse_known") else parsed
        command = sys.argv[1:] if input_args is None else input_args
        if getattr(args, "bf16", False) and "--tpu" not in command:
            args.tpu = False
        return parsed

    return wrap(options, "parse_args_and_arch", wrapper)


def usage_errors_in_one_sentence() -> bool:
    """A wrong flag prints a usage message of 300 lines before the error (no issue is known)."""

    def wrapper(parse, parser, *arguments, **keywords):
        def error(message):
            raise BadInput(f"{message}; see --help.")

        parser.error = error
        return parse(parser, *arguments, **keywords)

    return wrap(options, "parse_args_and_arch", wrapper)


def torchrun_without_gpu() -> bool:
    """Under torchrun the device is the rank modulo the number of GPUs, a division by zero where
    there is none (facebookresearch/fairseq#2879, #3318).
    """
    if torch.cuda.device_count() > 0:
        return False

    def wrapper(infer, cfg):
        cfg.distributed_init_method = "env://"
        cfg.distributed_world_size = int(os.environ["WORLD_SIZE"])
        cfg.distributed_rank = int(os.environ["RANK"])
        cfg.device_id = 0
        cfg.distributed_no_spawn = True

    return wrap(distributed_utils, "_infer_torch_distributed_launch_init", wrapper)


def process_groups_destroyed_at_exit() -> bool:
    """fairseq never destroys its process groups, so that gloo's threads outlive the interpreter and
    abort the process now and then (pytorch/pytorch#179291; :mod:`.process_groups`).
    """
    if mentions(distributed_utils, "destroy_process_group"):
        return False
    # Registered again, it would move to the end of the list; atexit keeps no second copy.
    atexit.unregister(process_groups.destroy_process_groups)
    atexit.register(process_groups.destroy_process_groups)
    return "process_groups_destroyed_at_exit" not in applied


def checked_before_start() -> bool:
    """Between reading the options and starting, check what fairseq does not (:mod:`.preflight`).

    A training that saved and stopped because of a signal exits with code 75 (:mod:`.preemption`).
    """

    def wrapper(call_main, cfg, main, **keywords):
        no_eval_in_fairseq()  # modules imported since
        program = Path(inspect.getfile(main)).stem
        preflight.prepare(cfg, program)
        if program != "train":
            return call_main(cfg, main, **keywords)
        with (
            preflight.nothing_left_behind(cfg.checkpoint.save_dir),
            preflight.alone_in(cfg.checkpoint.save_dir, preflight.rank_of(cfg)),
            preemption.listening() as request,
        ):
            result = call_main(cfg, main, **keywords)
        if code := preemption.exit_code(request):
            raise SystemExit(code)
        return result

    return wrap(distributed_utils, "call_main", wrapper)


def unknown_model_named() -> bool:
    """fairseq's message about a model that is not registered fails while it is made, with an
    AttributeError in 0.12 (``build_model``).
    """

    def wrapper(build_model, cfg, *arguments, **keywords):
        name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
        if name and name not in {**models.ARCH_MODEL_REGISTRY, **models.MODEL_REGISTRY}:
            raise BadInput(
                f"There is no model '{name}'; if another plugin defines it, name that plugin with "
                "--user-dir."
            )
        return build_model(cfg, *arguments, **keywords)

    return wrap(models, "build_model", wrapper)


def saving_on_a_signal() -> bool:
    """fairseq's loop handles no signals, so a run that a cluster ends loses what came after its last
    checkpoint; no release of fairseq does otherwise (:mod:`.preemption`).

    Loading the checkpoint is the last call before the loop that is given the trainer; a damaged one
    is replaced before (:mod:`.durability`), and what is resumed is checked (:mod:`.resuming`) and recorded (:mod:`.training_record`) there as well.
    """

    def wrapper(load_checkpoint, cfg, trainer, **keywords):
        if trainer.data_parallel_rank == 0 and cfg.restore_file == "checkpoint_last.pt":
            newest_whole_checkpoint(cfg.save_dir, trainer.checkpoint_suffix)
        if trainer.data_parallel_world_size > 1:
            torch.distributed.barrier()
        with resuming.resuming(trainer, cfg), wrong_parts(Path(cfg.save_dir) / cfg.restore_file):
            loaded = load_checkpoint(cfg, trainer, **keywords)
        training_record.record(trainer, loaded[0])
        preemption.save_and_stop_on_request(trainer)
        return loaded

    return wrap(checkpoint_utils, "load_checkpoint", wrapper)


def this_package_as_user_dir() -> bool:
    """fairseq compares the text of paths (facebookresearch/fairseq#2815): the folder this package
    was imported from is "not globally unique" when ``--user-dir`` leads there through a link.

    A second copy is refused, whichever was imported first.
    """

    def wrapper(import_user_module, args):
        folder = getattr(args, "user_dir", None)
        if folder is not None and user_dir.is_this_package(folder):
            return None
        return import_user_module(args)

    return wrap(utils, "import_user_module", wrapper)


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


WORKAROUNDS = (
    numpy_without_compat,
    older_checkpoints,
    options_not_resolved,
    checkpoints_validated,
    meters_by_name_only,
    no_eval_in_fairseq,
    archives_extracted_safely,
    resuming_with_several_processes,
    bf16_without_tpu,
    usage_errors_in_one_sentence,
    torchrun_without_gpu,
    process_groups_destroyed_at_exit,
    checked_before_start,
    unknown_model_named,
    damaged_dictionaries_named,
    damaged_data_named,
    no_plasma,
    last_batch_kept,
    whole_checkpoints,
    whole_checkpoints_or_none,
    saving_on_a_signal,
    same_batches_after_resuming,
    this_package_as_user_dir,
    logging_as_configured,
    hydra_without_advice,
)
