"""Every workaround for fairseq, PyTorch and NumPy: one function each, naming its upstream issue.

:func:`apply` runs once, when this package registers with fairseq. Each workaround looks first
whether it is needed, changes nothing where it is not, and says whether it changed something.
Nothing outside of fairseq's own modules is changed.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import logging
import os
import sys
import types
import typing
import warnings
from collections import defaultdict
from contextlib import AbstractContextManager
from pathlib import Path

import hydra
import numpy
import omegaconf
import torch
from fairseq import checkpoint_utils, file_io, options, utils
from fairseq.data import language_pair_dataset, token_block_dataset
from fairseq.distributed import utils as distributed_utils
from omegaconf.base import ContainerMetadata, Metadata
from omegaconf.nodes import AnyNode

from . import launch, preemption, registration, training_record
from .errors import running_a_command

#: Names of the workarounds that were needed here.
applied: list[str] = []


def apply() -> None:
    """Apply every workaround that is needed."""
    applied.extend(workaround.__name__ for workaround in WORKAROUNDS if workaround())


def numpy_without_compat() -> bool:
    """``np.compat`` is gone in NumPy 2 (numpy/numpy#28961), and fairseq uses it to cut text into
    sentences: ``fairseq-interactive``, ``score`` and ``sample`` fail without it.
    """
    modules = [
        module
        for module in (token_block_dataset, language_pair_dataset)
        if _mentions(module, "np.compat") and not hasattr(module.np, "compat")
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
    """torch 2.6 loads tensors and plain values alone unless told otherwise, and checkpoints of
    older fairseq hold an ``argparse.Namespace`` (facebookresearch/fairseq#5610).

    Types that hold values and run no code are allowed while fairseq loads a checkpoint; everything
    else is still refused.
    """
    return _allow_types(checkpoint_utils, "load_checkpoint_to_cpu", _TYPES_IN_CHECKPOINTS)


def resuming_with_several_processes() -> bool:
    """The first process sends a checkpoint to the others as fairseq's and omegaconf's objects, which
    torch 2.6 refuses as well (facebookresearch/fairseq#5610), so no such run could be resumed.
    """
    types_sent = [*_TYPES_IN_CHECKPOINTS, distributed_utils._TensorPlaceholder]
    return _allow_types(distributed_utils, "_broadcast_object_slow", types_sent)


_TYPES_IN_CHECKPOINTS = [
    argparse.Namespace,
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    ContainerMetadata,
    Metadata,
    AnyNode,
    defaultdict,
    *(bool, dict, float, int, list, str),
    (typing.Any, "typing.Any"),
    numpy.dtype,
    *(type(numpy.dtype(kind)) for kind in ("float32", "float64", "int64")),
    (numpy.float64(0).__reduce__()[0], "numpy.core.multiarray.scalar"),
    (numpy.float64(0).__reduce__()[0], "numpy._core.multiarray.scalar"),
]


def values_only() -> AbstractContextManager:
    """Inside of it ``torch.load(…, weights_only=True)`` also reads the types that checkpoints of
    older fairseq hold (facebookresearch/fairseq#5610), and still refuses all others.
    """
    return torch.serialization.safe_globals(_TYPES_IN_CHECKPOINTS)


def _allow_types(module, name: str, allowed: list) -> bool:
    if torch.__version__ < (2, 6) or _mentions(getattr(module, name), "weights_only"):
        return False
    return _within(module, name, lambda: torch.serialization.safe_globals(allowed))


def bf16_without_tpu() -> bool:
    """``--bf16`` and ``--memory-efficient-bf16`` switch to TPUs, which crashes on every other device
    (facebookresearch/fairseq#4696). Only ``--tpu`` does that now.
    """
    if not _mentions(options.parse_args_and_arch, "args.tpu = True"):
        return False

    def wrapper(parse, parser, input_args=None, **keywords):
        parsed = parse(parser, input_args, **keywords)
        args = parsed[0] if keywords.get("parse_known") else parsed
        command = sys.argv[1:] if input_args is None else input_args
        if getattr(args, "bf16", False) and "--tpu" not in command:
            args.tpu = False
        return parsed

    return _wrap(options, "parse_args_and_arch", wrapper)


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

    return _wrap(distributed_utils, "_infer_torch_distributed_launch_init", wrapper)


def look_before_start() -> bool:
    """Between reading the options and starting, check what fairseq does not (:mod:`.launch`)."""

    def wrapper(call_main, cfg, main, **keywords):
        launch.prepare(cfg, program=Path(inspect.getfile(main)).stem)
        with launch.nothing_left_behind(cfg.checkpoint.save_dir), preemption.signals_as_before():
            return call_main(cfg, main, **keywords)

    return _wrap(distributed_utils, "call_main", wrapper)


def whole_checkpoints() -> bool:
    """``checkpoint_last.pt`` is copied over the old one byte by byte, so that a run that is killed
    meanwhile cannot be resumed (facebookresearch/fairseq#2684). Copy aside, then rename.
    """
    if file_io.IOPathManager is not None:  # copies as it sees fit, also to other machines
        return False

    def wrapper(copy, src_path, dst_path, overwrite=False):
        copy(src_path, f"{dst_path}.tmp", overwrite)
        os.replace(f"{dst_path}.tmp", dst_path)
        return dst_path

    return _wrap(file_io.PathManager, "copy", wrapper, kind=staticmethod)


def saving_when_told_to_stop() -> bool:
    """fairseq's loop looks at no signals, so a run that a cluster ends loses what came after its last
    checkpoint; no release of fairseq does otherwise (:mod:`.preemption`).

    Loading the checkpoint is the last thing before the loop in which fairseq shows its trainer. Its
    run is recorded from there as well (:mod:`.training_record`).
    """

    def wrapper(load_checkpoint, cfg, trainer, **keywords):
        loaded = load_checkpoint(cfg, trainer, **keywords)
        training_record.record(trainer, loaded[0])
        preemption.save_and_stop_when_told(trainer)
        return loaded

    return _wrap(checkpoint_utils, "load_checkpoint", wrapper)


def this_package_as_user_dir() -> bool:
    """fairseq compares the text of paths (facebookresearch/fairseq#2815): the folder this package
    was imported from is "not globally unique" when ``--user-dir`` leads there through a link.

    A second copy stops with a sentence, whichever was imported first.
    """

    def wrapper(import_user_module, args):
        user_dir = getattr(args, "user_dir", None)
        if user_dir is not None and registration.is_this_package(user_dir):
            return None
        return import_user_module(args)

    return _wrap(utils, "import_user_module", wrapper)


def logging_as_asked() -> bool:
    """Importing fairseq's models makes the root logger print everything to stderr
    (``wav2vec2_classification``), and what a command asks for afterwards is ignored (as in
    facebookresearch/fairseq#3592). Undo the one, repeat the other.
    """
    culprit = sys.modules.get("fairseq.models.wav2vec.wav2vec2_classification")  # since 0.12.3
    root = logging.getLogger()
    by_import = (
        culprit is not None
        and _mentions(culprit, "logging.basicConfig(level=logging.DEBUG)")
        and root.level == logging.DEBUG
        and [getattr(h.formatter, "_fmt", None) for h in root.handlers] == [logging.BASIC_FORMAT]
        and (registration.fairseq_is_ours or running_a_command())
    )
    if not by_import:
        return False
    root.removeHandler(root.handlers[0])
    root.setLevel(logging.WARNING)
    if not registration.fairseq_is_ours:
        logging.basicConfig(
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            stream=sys.stdout,
        )
    return True


def hydra_without_advice() -> bool:
    """hydra since 1.1 advises on each form of 1.0 that fairseq still uses, in thirty lines at every
    start (facebookresearch/fairseq#4133), and our one sentence about a mistake drowns in them.
    """
    if not running_a_command() or hydra.__version__.startswith("1.0."):
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
    resuming_with_several_processes,
    bf16_without_tpu,
    torchrun_without_gpu,
    look_before_start,
    whole_checkpoints,
    saving_when_told_to_stop,
    this_package_as_user_dir,
    logging_as_asked,
    hydra_without_advice,
)


def _mentions(code, text: str) -> bool:
    """Whether upstream's source has a text: the defect itself, or what mends it."""
    return text in inspect.getsource(inspect.unwrap(code) if callable(code) else code)


def _within(module, name: str, context: typing.Callable[[], AbstractContextManager]) -> bool:
    def wrapper(function, *arguments, **keywords):
        with context():
            return function(*arguments, **keywords)

    return _wrap(module, name, wrapper)


def _wrap(owner, name: str, wrapper, kind=lambda function: function) -> bool:
    """Replace ``owner.name`` by ``wrapper(original, …)``, once."""
    original = getattr(owner, name)
    if hasattr(original, "__wrapped__"):
        return False

    @functools.wraps(original)
    def replacement(*arguments, **keywords):
        return wrapper(original, *arguments, **keywords)

    setattr(owner, name, kind(replacement))
    return True
