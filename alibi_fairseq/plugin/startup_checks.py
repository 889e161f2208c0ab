"""Checks before a command of fairseq starts: of its options, and of how it was started."""

from __future__ import annotations

import logging
import multiprocessing
import sys
from pathlib import Path

from fairseq.utils import safe_getattr
from omegaconf import DictConfig, OmegaConf

from ..errors import UserInputError
from ..positions import MethodSpec
from ..results.file_names import LAST_CHECKPOINT
from .kept_checkpoints import check_kept_updates, kept_updates
from .option_validation import check_values, plain_values
from .patches import distributed

logger = logging.getLogger(__name__)


def check(cfg: DictConfig, program: str) -> None:
    """Check options that would kill a command, or make it compute something else.

    Args:
        cfg: fairseq's configuration.
        program: the name of the command's module: ``train``, ``eval_lm``, ``generate``, …
    """
    if program == "eval_lm":
        check_context_window(cfg)
    if program == "train":
        check_precision(cfg)
        check_start_checkpoint(cfg)
        check_kept_updates(
            kept_updates(),
            cfg.optimization.max_update,
            cfg.dataset.validate_after_updates,
            cfg.checkpoint.no_save,
            cfg.checkpoint.no_last_checkpoints,
        )
        check_unused_options(cfg)
        check_loadable(cfg)
        warn_of_stock_positions(cfg)


def check_loadable(cfg: DictConfig) -> None:
    """Check that the options pass the validation of every command that loads a checkpoint."""
    saved = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    try:
        check_values(plain_values(saved))
    except ValueError as error:
        raise UserInputError(
            f"No command could load the checkpoints of this training: {error}. Change this option."
        ) from error


def check_unused_options(cfg: DictConfig) -> None:
    """Check that no option of fairseq's models is given that has no effect on our models."""
    if safe_getattr(cfg.model, "position_method") is None:
        return
    longest = safe_getattr(cfg.task, "max_target_positions")
    length = safe_getattr(cfg.task, "tokens_per_sample")
    unused = {
        "--decoder-learned-pos": cfg.model.decoder_learned_pos,
        "--no-token-positional-embeddings": cfg.model.no_token_positional_embeddings,
        "--decoder-xformers-att-config": cfg.model.decoder_xformers_att_config,
        f"--max-target-positions {longest}": longest not in (None, length),
    }
    for option, given in unused.items():
        if given:
            raise UserInputError(
                f"{option} has no effect on this model. Remove it: --position-method chooses the "
                "positions, and --tokens-per-sample the training length."
            )


def warn_of_stock_positions(cfg: DictConfig) -> None:
    """Warn that fairseq's own model has no ALiBi, as it does in the fork of ALiBi's authors."""
    arch = safe_getattr(cfg.model, "_name", "")
    if not arch.startswith("transformer_lm") or distributed.process_rank(cfg) > 0:
        return
    (method,) = MethodSpec.from_options(cfg.model).names
    ours = "alibi_lm_wiki103" if arch.endswith("wiki103") else "alibi_lm"
    logger.warning(
        f"--arch {arch} is fairseq's model, with position method '{method}'. In the ALiBi "
        f"authors' fork, it is an ALiBi model; for that, pass --arch {ours} here."
    )


def check_context_window(cfg: DictConfig) -> None:
    """Check that the windows of ``fairseq-eval-lm`` leave tokens to score."""
    window = cfg.eval_lm.context_window
    length = safe_getattr(cfg.task, "tokens_per_sample")
    if not 0 <= window < length:
        raise UserInputError(
            f"--context-window must be at least 0 and less than --tokens-per-sample ({length}), "
            f"not {window}."
        )


def check_precision(cfg: DictConfig) -> None:
    """Check that the device can train in the precision that is asked for.

    fairseq's trainer ignores ``memory_efficient_fp16`` without ``fp16``. The command line sets both
    by one flag, but YAML need not.
    """
    common = cfg.common
    for precision in ("fp16", "bf16"):
        option = f"memory_efficient_{precision}"
        if common[option] and not common[precision]:
            raise UserInputError(
                f"common.{option} has no effect without common.{precision}. Add "
                f"common.{precision}=true, or for another precision common.{option}=false."
            )
    is_plain_fp16 = common.fp16 and not common.memory_efficient_fp16
    if is_plain_fp16 and distributed.runs_without_gpu(cfg):
        raise UserInputError(
            "--fp16 trains on a GPU only. On a CPU, remove --fp16 (in YAML: common.fp16=false), or "
            "pass --bf16 or --memory-efficient-fp16."
        )


def check_start_checkpoint(cfg: DictConfig) -> None:
    """Check the checkpoint to start from.

    fairseq starts from random weights if it does not exist. If the same command is rerun, fairseq
    loads the ``--restore-file`` again and discards ``checkpoint_last.pt``.
    """
    paths = {
        "--finetune-from-model": cfg.checkpoint.finetune_from_model,
        "--continue-once": safe_getattr(cfg.checkpoint, "continue_once"),
    }
    restore_file = cfg.checkpoint.restore_file
    if restore_file != LAST_CHECKPOINT:
        paths["--restore-file"] = restore_file
    for flag, path in paths.items():
        if path and "://" not in path and not Path(path).is_file():
            raise UserInputError(f"There is no checkpoint file {path}. Correct {flag}.")
    last = Path(cfg.checkpoint.save_dir) / LAST_CHECKPOINT
    restored = last if restore_file == LAST_CHECKPOINT else Path(restore_file)
    if last.is_file() and restored.resolve() != last.resolve():
        raise UserInputError(
            f"{cfg.checkpoint.save_dir} has a newer checkpoint than --restore-file. Remove "
            "--restore-file to resume from it, or choose another --save-dir."
        )


def reject_plain_hydra_train() -> None:
    """Reject ``fairseq-hydra-train``, which imports this package too late.

    It reads ``common.user_dir`` only in the training itself (``utils.import_user_module`` in
    ``fairseq_cli/train.py``), after :func:`check`, the lock of the save folder, and the handling of
    signals should have begun. ``alibi-fairseq hydra-train`` imports this package first.
    """
    from hydra.core.hydra_config import HydraConfig

    # Hydra is not initialized in a process that torch.multiprocessing.spawn started.
    in_training = HydraConfig.initialized() or multiprocessing.parent_process() is not None
    programs = [sys.modules.get("fairseq_cli.hydra_train"), sys.modules["__main__"]]
    if in_training and any(hasattr(program, "hydra_main") for program in programs):
        raise UserInputError(
            "fairseq-hydra-train starts without this package's checks. Use alibi-fairseq "
            "hydra-train, which takes the same options."
        )
