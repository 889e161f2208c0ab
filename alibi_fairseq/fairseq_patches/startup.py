"""Between reading the options of a fairseq command and starting it: checks, and processes that find each other."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import torch
from fairseq import options
from fairseq.dataclass import utils as dataclass_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.utils import safe_getattr
from omegaconf import DictConfig

from ..checkpoints.loading import safe_types_allowed
from ..errors import UserInputError, option_errors, usage_error
from . import patch_method

logger = logging.getLogger(__name__)

#: Programs that combine the results of several processes. Others would print one part each.
SHARED_WORK = ("train", "validate")


def check(cfg: DictConfig, program: str) -> None:
    """Check options that would end a command by a signal, or with numbers of something else.

    Args:
        program: the name of its module: ``train``, ``eval_lm``, ``generate``, …
    """
    if (multiple := cfg.dataset.required_batch_size_multiple) < 1:
        # fairseq divides by it in compiled code, which kills the process.
        raise UserInputError(f"--required-batch-size-multiple must be at least 1, not {multiple}.")
    window, length = cfg.eval_lm.context_window, safe_getattr(cfg.task, "tokens_per_sample")
    if program == "eval_lm" and not 0 <= window < length:
        raise UserInputError(
            f"--context-window must be at least 0 and less than --tokens-per-sample ({length}), "
            f"not {window}."
        )
    if program != "train":
        return
    if cfg.common.fp16 and not cfg.common.memory_efficient_fp16 and _without_gpu(cfg):
        raise UserInputError(
            "--fp16 trains on a GPU only; on the CPU leave it out, or take --bf16 or "
            "--memory-efficient-fp16."
        )
    # fairseq starts from random weights. The default is looked for in the save folder, and need not
    # be there.
    restored, finetuned = cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model
    named = {"--restore-file": restored if restored != "checkpoint_last.pt" else None}
    for flag, path in (named | {"--finetune-from-model": finetuned}).items():
        if path and "://" not in path and not Path(path).is_file():
            raise UserInputError(f"There is no checkpoint file {path}; check {flag}.")


def _without_gpu(cfg: DictConfig) -> bool:
    return not cfg.common.tpu and (cfg.common.cpu or not torch.cuda.is_available())


@patch_method(options, "parse_args_and_arch")
def bf16_without_tpu(parse, parser, input_args=None, **keywords):
    """``--bf16`` and ``--memory-efficient-bf16`` switch to TPUs, which crashes on every other device
    (facebookresearch/fairseq#4696). Only ``--tpu`` does that now.
    """
    parsed = parse(parser, input_args, **keywords)
    args = parsed[0] if keywords.get("parse_known") else parsed
    command = sys.argv[1:] if input_args is None else input_args
    if getattr(args, "bf16", False) and "--tpu" not in command:
        args.tpu = False
    return parsed


@patch_method(options, "parse_args_and_arch")
def usage_errors_in_one_sentence(parse, parser, *arguments, **keywords):
    """A wrong flag prints a usage message of 300 lines before the error (no issue is known)."""

    def error(message):
        raise usage_error(message, Path(sys.argv[0]).name)

    parser.error = error
    with option_errors():
        return parse(parser, *arguments, **keywords)


@patch_method(dataclass_utils, "convert_namespace_to_omegaconf")
def wrong_values_in_one_sentence(convert, args):
    """A value that fits no field of fairseq's dataclasses raises a bare exception (no issue is known)."""
    with option_errors():
        return convert(args)


def join(cfg: DictConfig, program: str) -> None:
    """Let processes that were started together work together.

    fairseq looks at what torchrun and srun tell it only if it expects several processes already,
    that is on a machine with several GPUs in sight. Otherwise each process would train a model of
    its own and overwrite the others' checkpoints (facebookresearch/fairseq#4302, #4051).
    """
    job, without_gpu = cfg.distributed_training, _without_gpu(cfg)
    started = started_together()
    if cfg.common.tpu:
        return
    if job.distributed_init_method is None:
        if started > 1 and program not in SHARED_WORK:
            raise UserInputError(
                f"{started} processes were started together, but fairseq-"
                f"{program.replace('_', '-')} does not add up what they find; start one process."
            )
        if "RANK" in os.environ and started > 1:
            job.distributed_world_size = started
            if without_gpu:
                # fairseq divides by the number of GPUs (facebookresearch/fairseq#2879, #3318).
                job.distributed_init_method = "env://"
                job.distributed_rank, job.device_id = int(os.environ["RANK"]), 0
                job.distributed_no_spawn = True
        elif started > 1 and job.distributed_world_size == 1:
            raise UserInputError(
                f"srun started {started} processes, but each would train a model of its own; add "
                f"--distributed-world-size {started} --distributed-port 29500, or use torchrun."
            )
        elif cfg.common.cpu:
            # By default one process for each GPU, even if none of them is to be used.
            job.distributed_world_size = 1
    if without_gpu and job.distributed_world_size > 1:
        # fairseq's defaults for several processes need GPUs (facebookresearch/fairseq#2879).
        if job.distributed_backend == "nccl":
            job.distributed_backend = "gloo"
        if str(job.ddp_backend) in ("pytorch_ddp", "c10d"):
            job.ddp_backend = "legacy_ddp"
        logger.info("no GPU is used: processes are joined by gloo and legacy_ddp")


def started_together() -> int:
    """Number of processes that torchrun or srun says it has started; 1 without them."""
    if all(key in os.environ for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")):
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if not 0 <= rank < size:  # the others would be waited for without end
            raise UserInputError(f"RANK={rank} must be at least 0 and less than WORLD_SIZE={size}.")
        return size
    # Set by srun for each step; a batch script that runs outside of a step has none.
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))


def rank_of(cfg: DictConfig) -> int:
    """Number of this process in its job, as torchrun, srun or ``--distributed-rank`` say it."""
    said = (os.environ.get("RANK", 0), os.environ.get("SLURM_PROCID", 0))
    return max(cfg.distributed_training.distributed_rank or 0, *map(int, said))


def refuse_separate_jobs() -> None:
    """Refuse to start where this package is imported too late to join the processes of a job.

    ``fairseq-hydra-train`` reads ``common.user_dir`` only after it has settled how it runs.
    """
    from hydra.core.hydra_config import HydraConfig

    alone = not torch.distributed.is_initialized()
    if HydraConfig.initialized() and started_together() > 1 and alone:
        raise UserInputError(
            f"{started_together()} processes were started together, but each would train a model "
            "of its own; use alibi-fairseq hydra-train instead of fairseq-hydra-train, or set "
            f"distributed_training.distributed_world_size={started_together()}."
        )


@patch_method(distributed_utils, "_broadcast_object_slow")
def resuming_with_several_processes(broadcast, *arguments, **keywords):
    """The first process sends a checkpoint to the others as fairseq's and omegaconf's objects, which
    torch 2.6 refuses as well (facebookresearch/fairseq#5610), so no such run could be resumed.
    """
    with safe_types_allowed(distributed_utils._TensorPlaceholder):
        return broadcast(*arguments, **keywords)
