"""Checks between reading the options of a fairseq command and starting it."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq.utils import safe_getattr, split_paths
from omegaconf import DictConfig

from .errors import BadInput
from .files import locked

logger = logging.getLogger(__name__)

#: Programs that combine the results of several processes. Others would print one part each.
SHARED_WORK = ("train", "validate")


def prepare(cfg: DictConfig, program: str) -> None:
    """Check the options of a fairseq command and settle how its processes find each other.

    Args:
        cfg: fairseq's whole configuration; changed in place.
        program: which one, by the name of its module: ``train``, ``eval_lm``, ``generate``, …

    Raises:
        BadInput: with what is wrong and what to do.
    """
    _check_lengths(cfg, program)
    _check_data(cfg)
    _check_numbers(cfg)
    if program == "train":
        _check_precision(cfg)
        _check_restore_file(cfg)
        _check_wandb(cfg)
    _join_processes(cfg, program)


def _check_lengths(cfg: DictConfig, program: str) -> None:
    length = safe_getattr(cfg.task, "tokens_per_sample")
    lengths = {
        "--tokens-per-sample": length,
        "--max-tokens": cfg.dataset.max_tokens,
        "--max-tokens-valid": cfg.dataset.max_tokens_valid,
        "--batch-size": cfg.dataset.batch_size,
    }
    for flag, value in lengths.items():
        if value is not None and value < 1:
            raise BadInput(f"{flag} must be at least 1, not {value}.")
    size, cut = cfg.dataset.max_tokens, safe_getattr(cfg.task, "sample_break_mode", "none")
    of_stretches = cut in (None, "none") and program == "train"
    if of_stretches and length is not None and size is not None and size < length:
        raise BadInput(
            f"--max-tokens {size} is less than the length of a sample ({length}); make it at least "
            "--tokens-per-sample."
        )
    window = cfg.eval_lm.context_window
    if program == "eval_lm" and not 0 <= window < length:
        raise BadInput(
            f"--context-window must be at least 0 and less than --tokens-per-sample ({length}), "
            f"not {window}."
        )


def _check_numbers(cfg: DictConfig) -> None:
    """What fairseq trips over later: in NumPy, in the data loader or by a division by zero."""
    workers, seed = cfg.dataset.num_workers, cfg.common.seed
    if workers is not None and workers < 0:
        raise BadInput(f"--num-workers must be at least 0, not {workers}.")
    if not 0 <= seed < 2**32 - 2**24:  # NumPy's seeds have 32 bits; updates and epochs are added
        raise BadInput(f"--seed must be between 0 and {2**32 - 2**24 - 1}, not {seed}.")
    for value in cfg.optimization.update_freq:
        if value < 1:
            raise BadInput(f"--update-freq must be at least 1, not {value}.")
    warmup = safe_getattr(cfg.lr_scheduler, "warmup_updates")
    scheduler = safe_getattr(cfg.lr_scheduler, "_name")
    if warmup is not None and (warmup < 0 or (warmup == 0 and scheduler == "inverse_sqrt")):
        least = 1 if scheduler == "inverse_sqrt" else 0
        raise BadInput(f"--warmup-updates must be at least {least}, not {warmup}.")


def _check_data(cfg: DictConfig) -> None:
    for folder in split_paths(safe_getattr(cfg.task, "data", "")):
        if folder and not Path(folder).is_dir():
            raise BadInput(
                f"There is no data folder {folder}; name one that fairseq-preprocess has made."
            )


def _on_cpu(cfg: DictConfig) -> bool:
    return not cfg.common.tpu and (cfg.common.cpu or not torch.cuda.is_available())


def _check_precision(cfg: DictConfig) -> None:
    if cfg.common.fp16 and not cfg.common.memory_efficient_fp16 and _on_cpu(cfg):
        raise BadInput(
            "--fp16 trains on a GPU only; on the CPU leave it out, or take --bf16 or "
            "--memory-efficient-fp16."
        )


def _check_restore_file(cfg: DictConfig) -> None:
    """fairseq starts from random weights, and says so in its log alone."""
    path = cfg.checkpoint.restore_file
    # The default is looked for in the save folder, and need not be there.
    if path != "checkpoint_last.pt" and "://" not in path and not Path(path).is_file():
        raise BadInput(f"There is no checkpoint {path}; check --restore-file.")


def _check_wandb(cfg: DictConfig) -> None:
    """fairseq trains without it, and says so in its log alone."""
    if cfg.common.wandb_project and importlib.util.find_spec("wandb") is None:
        raise BadInput("--wandb-project needs wandb; pip install 'alibi-fairseq[wandb]'.")


def _join_processes(cfg: DictConfig, program: str) -> None:
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


def _work_without_gpu(cfg: DictConfig) -> None:
    """fairseq's defaults for several processes need GPUs (facebookresearch/fairseq#2879)."""
    job = cfg.distributed_training
    if not _on_cpu(cfg):
        return
    if job.distributed_backend == "nccl":
        job.distributed_backend = "gloo"
    if str(job.ddp_backend) in ("pytorch_ddp", "c10d"):
        job.ddp_backend = "legacy_ddp"
    logger.info("no GPU is used: processes are joined by gloo and legacy_ddp")


def started_together() -> int:
    """How many processes torchrun or srun says it has started; 1 without them."""
    if all(key in os.environ for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")):
        return int(os.environ["WORLD_SIZE"])
    # Set by srun for each step; a batch script that runs outside of a step has none.
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1))


@contextmanager
def nothing_left_behind(save_dir: str) -> Iterator[None]:
    """Remove the save folder if a command made it and failed before it wrote anything there."""
    was_there = os.path.isdir(save_dir)
    try:
        yield
    except Exception:
        if not was_there and os.path.isdir(save_dir) and not os.listdir(save_dir):
            os.rmdir(save_dir)
        raise


def rank_of(cfg: DictConfig) -> int:
    """Number of this process in its job, as torchrun, srun or ``--distributed-rank`` say it."""
    said = (os.environ.get("RANK", 0), os.environ.get("SLURM_PROCID", 0))
    return max(cfg.distributed_training.distributed_rank or 0, *map(int, said))


@contextmanager
def alone_in(save_dir: str, rank: int = 0) -> Iterator[None]:
    """Let no other training write to the save folder while the block runs.

    The first process of a job holds the lock for all.

    Raises:
        BadInput: another training writes there, or the folder cannot be written to.
    """
    if rank > 0 or "://" in save_dir:
        yield
        return
    with locked(Path(save_dir) / "training.lock", f"--save-dir {save_dir}", "training"):
        yield


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
