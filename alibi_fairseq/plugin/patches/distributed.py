"""Workarounds for processes that train together: how they find each other, and how they end."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
import traceback
from datetime import timedelta

import torch
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.distributed import utils as distributed_utils
from omegaconf import DictConfig
from torch import distributed

from ...errors import UserInputError
from ..loading import safe_types_allowed
from . import patch_method

logger = logging.getLogger(__name__)

#: Key of the processes' store, which the first process sets when it is ready to train.
_STARTED = "alibi_fairseq/started"

#: Programs that combine the results of several processes. Others would print one part each.
SHARED_WORK = ("train", "validate")


def runs_without_gpu(cfg: DictConfig) -> bool:
    """Return True if the command computes on the CPU."""
    return not cfg.common.tpu and (cfg.common.cpu or not torch.cuda.is_available())


def join(cfg: DictConfig, program: str) -> None:
    """Let processes that were started together work together.

    fairseq looks at what torchrun and srun tell it only if it expects several processes already,
    that is on a machine with several visible GPUs. Otherwise each process would train a separate
    model and overwrite the others' checkpoints (facebookresearch/fairseq#4302, #4051).

    Raises:
        UserInputError: srun has started several processes that know nothing of each other, or
            several would run a program that combines no results.
    """
    if cfg.common.tpu:
        return
    if program not in SHARED_WORK:
        _use_one_process(cfg, program)
        return
    job = cfg.distributed_training
    without_gpu = runs_without_gpu(cfg)
    if job.distributed_init_method is None:
        started = started_together()
        if "RANK" in os.environ and started > 1:
            default = max(1, torch.cuda.device_count())
            if program == "train" and job.distributed_world_size not in (started, default):
                logger.warning(
                    f"{started} processes were started together, so --distributed-world-size "
                    f"{job.distributed_world_size} has no effect, and an update has other tokens"
                )
            job.distributed_world_size = started
            if without_gpu:
                # fairseq divides by the number of GPUs (facebookresearch/fairseq#2879, #3318).
                job.distributed_init_method = "env://"
                job.distributed_rank = int(os.environ["RANK"])
                job.device_id = 0
                job.distributed_no_spawn = True
        elif started > 1 and job.distributed_world_size == 1:
            raise UserInputError(
                f"srun started {started} processes, but each would train a separate model. Add "
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


def _use_one_process(cfg: DictConfig, program: str) -> None:
    """Let a program that combines no results run in one process.

    Several would print only the results of the first one, for its part of the data. By default
    ``fairseq-train`` and Hydra's commands start one process for each GPU, and the others run in one
    process (``fairseq/options.py``).

    Raises:
        UserInputError: several processes were started, or were asked for.
    """
    job = cfg.distributed_training
    processes = job.distributed_world_size
    if job.distributed_init_method is None:
        processes = started_together()
    no_aggregation = f"fairseq-{program.replace('_', '-')} does not aggregate across processes"
    if processes > 1:
        raise UserInputError(
            f"{no_aggregation}. Start one process, without --distributed-init-method or with "
            "--distributed-world-size 1."
        )
    if job.distributed_world_size > 1 and not cfg.common.cpu:
        logger.info(f"{no_aggregation}, so it runs in one process on one GPU")
    job.distributed_world_size = 1


def started_together() -> int:
    """Return the number of processes that torchrun or srun has started; 1 without them."""
    if all(key in os.environ for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")):
        return int(os.environ["WORLD_SIZE"])
    # Set by srun for each step; a batch script that runs outside of a step has none.
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))


def process_rank(cfg: DictConfig) -> int:
    """Return the rank of this process, given by torchrun, srun or ``--distributed-rank``.

    torchrun's rank alone counts: srun numbers the launchers, and it may order the nodes otherwise.
    """
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    srun_rank = int(os.environ.get("SLURM_PROCID", 0))
    return max(cfg.distributed_training.distributed_rank or 0, srun_rank)


@patch_method(distributed_utils, "_infer_slurm_init")
def keep_world_size_of_one_process(infer, cfg: DistributedTrainingConfig, *arguments) -> bool:
    """Return False for one process of a SLURM job, which fairseq then treats as outside of SLURM.

    fairseq would ignore ``--distributed-world-size`` and start a process for each GPU of the job,
    so that an update has other tokens, or fail where ``SLURM_NTASKS`` is not set. With
    ``--distributed-port``, other nodes may run the same command. Not reported upstream.
    """
    if started_together() == 1 and cfg.distributed_port <= 0:
        return False
    return infer(cfg, *arguments)


@patch_method(distributed_utils, "_broadcast_object_slow")
def broadcast_checkpoint(broadcast, *arguments, **keywords):
    """Allow fairseq's types while the first process sends a checkpoint to the others.

    It sends objects of fairseq and omegaconf, which torch 2.6 refuses to load
    (facebookresearch/fairseq#5610), so that no run with several processes could be resumed.
    """
    with safe_types_allowed(distributed_utils._TensorPlaceholder):
        return broadcast(*arguments, **keywords)


@patch_method(distributed_utils, "distributed_init")
def wait_while_first_process_saves(init, cfg):
    """Let processes wait for one another for 30 minutes, as with PyTorch before 2.1.

    One process saves while the others wait in their next update, and NCCL now ends a job that
    waits for 10 minutes. A model of 1.3B parameters has three files of 16 GB, which take longer
    on a file system below 80 MB/s (not reported upstream).
    """
    distributed.distributed_c10d.default_pg_nccl_timeout = timedelta(minutes=30)
    return init(cfg)


def meet(is_first: bool) -> None:
    """Let all processes meet, after which they can call :func:`wait_for_first_process`.

    After a restart, torchrun may give the workers the store of the attempt before, with its key.
    The number of the attempt cannot tell them apart, because each node counts its own restarts.
    """
    if is_first:
        distributed.distributed_c10d._get_default_store().delete_key(_STARTED)
    distributed.barrier()


def wait_for_first_process(is_first: bool) -> None:
    """Wait until the first process has called this as well, for at most a day.

    The first process hashes the training data, while the others would already wait for it in their
    first update, for 30 minutes at most (:func:`wait_while_first_process_saves`).
    """
    store = distributed.distributed_c10d._get_default_store()
    if is_first:
        store.set(_STARTED, "")
    else:
        store.wait([_STARTED], timedelta(days=1))


@atexit.register
def destroy_process_groups() -> None:
    """Destroy fairseq's process groups, and gloo's threads with them.

    fairseq never does, so that the threads outlive the interpreter and abort the process now and
    then (pytorch/pytorch#179291).

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
