"""Processes that train together: how they find each other, and how they part."""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback

import torch
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig
from torch import distributed

from ..errors import BadInput
from .loading_safely import allow_safe_types
from .patching import wrap

logger = logging.getLogger(__name__)

#: Programs that combine the results of several processes. Others would print one part each.
SHARED_WORK = ("train", "validate")


def destroy_process_groups() -> None:
    """Destroy the process groups that fairseq leaves open, and with them gloo's threads.

    gloo's threads drop the tensors of finished collectives, for which they need the interpreter
    lock. An interpreter that is shutting down ends a thread that asks for the lock, in the middle
    of C++ code that cannot be unwound, and the process dies with "terminate called without an
    active exception" (SIGABRT) although its work is done. ``destroy_process_group`` ends no thread
    as long as anything refers to a group: fairseq's cache, or the frames of an uncaught exception.

    Nor may DDP's reducer be the last that refers to one. It is freed with the interpreter lock
    held, then waits for gloo's threads, and these wait for the lock: the job never ends.
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


def resuming_with_several_processes() -> bool:
    """The first process sends a checkpoint to the others as fairseq's and omegaconf's objects, which
    torch 2.6 refuses as well (facebookresearch/fairseq#5610), so no such run could be resumed.
    """
    placeholder = distributed_utils._TensorPlaceholder
    return allow_safe_types(distributed_utils, "_broadcast_object_slow", placeholder)


def join(cfg: DictConfig, program: str) -> None:
    """Let processes that were started together work together.

    fairseq looks at what torchrun and srun tell it only if it expects several processes already,
    that is on a machine with several GPUs in sight. Otherwise each process would train a model of
    its own and overwrite the others' checkpoints (facebookresearch/fairseq#4302, #4051).
    """
    job = cfg.distributed_training
    if job.distributed_init_method is not None or cfg.common.tpu:
        if job.distributed_world_size > 1:
            _work_without_gpu(cfg)
        return
    started = started_together()
    if started > 1 and program not in SHARED_WORK:
        raise BadInput(
            f"{started} processes were started together, but fairseq-{program.replace('_', '-')} "
            "does not add up what they find; start one process."
        )
    if "RANK" in os.environ and started > 1:
        job.distributed_world_size = started
        _work_without_gpu(cfg)
    elif started > 1 and job.distributed_world_size == 1:
        raise BadInput(
            f"srun started {started} processes, but each would train a model of its own; add "
            f"--distributed-world-size {started} --distributed-port 29500, or use torchrun."
        )
    elif cfg.common.cpu:
        # By default one process for each GPU, even if none of them is to be used.
        job.distributed_world_size = 1


def is_on_cpu(cfg: DictConfig) -> bool:
    """Return whether a command uses no accelerator."""
    return not cfg.common.tpu and (cfg.common.cpu or not torch.cuda.is_available())


def _work_without_gpu(cfg: DictConfig) -> None:
    """fairseq's defaults for several processes need GPUs (facebookresearch/fairseq#2879)."""
    job = cfg.distributed_training
    if not is_on_cpu(cfg):
        return
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
            raise BadInput(f"RANK={rank} must be at least 0 and less than WORLD_SIZE={size}.")
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
        raise BadInput(
            f"{started_together()} processes were started together, but each would train a model "
            "of its own; use alibi-fairseq hydra-train instead of fairseq-hydra-train, or set "
            f"distributed_training.distributed_world_size={started_together()}."
        )
