"""Checks between reading the options of a fairseq command and starting it, and the options' names."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from fairseq import options
from fairseq.utils import safe_getattr, split_paths
from omegaconf import DictConfig

from .. import errors
from ..errors import BadInput
from .patching import mentions, wrap
from .processes import is_on_cpu


def check(cfg: DictConfig, program: str) -> None:
    """Check the options of a fairseq command.

    Args:
        cfg: fairseq's whole configuration.
        program: which one, by the name of its module: ``train``, ``eval_lm``, ``generate``, …

    Raises:
        BadInput: with what is wrong and what to do.
    """
    _check_lengths(cfg, program)
    _check_data(cfg)
    if program == "train":
        _check_precision(cfg)
        _check_restore_file(cfg)
        _check_wandb(cfg)


def _check_lengths(cfg: DictConfig, program: str) -> None:
    length = safe_getattr(cfg.task, "tokens_per_sample")
    lengths = {
        "--tokens-per-sample": length,
        "--max-tokens": cfg.dataset.max_tokens,
        "--max-tokens-valid": cfg.dataset.max_tokens_valid,
        "--batch-size": cfg.dataset.batch_size,
        # fairseq divides by it in compiled code, which kills the process.
        "--required-batch-size-multiple": cfg.dataset.required_batch_size_multiple,
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


def _check_data(cfg: DictConfig) -> None:
    for folder in split_paths(safe_getattr(cfg.task, "data", "")):
        if folder and not Path(folder).is_dir():
            raise BadInput(
                f"There is no data folder {folder}; name one that fairseq-preprocess has made."
            )


def _check_precision(cfg: DictConfig) -> None:
    if cfg.common.fp16 and not cfg.common.memory_efficient_fp16 and is_on_cpu(cfg):
        raise BadInput(
            "--fp16 trains on a GPU only; on the CPU leave it out, or take --bf16 or "
            "--memory-efficient-fp16."
        )


def _check_restore_file(cfg: DictConfig) -> None:
    """fairseq starts from random weights, and says so only in its log."""
    restored, finetuned = cfg.checkpoint.restore_file, cfg.checkpoint.finetune_from_model
    # The default is looked for in the save folder, and need not be there.
    named = {"--restore-file": restored if restored != "checkpoint_last.pt" else None}
    named["--finetune-from-model"] = finetuned
    for flag, path in named.items():
        if path and "://" not in path and not Path(path).is_file():
            raise BadInput(f"There is no checkpoint file {path}; check {flag}.")


def _check_wandb(cfg: DictConfig) -> None:
    """fairseq trains without it, and says so only in its log."""
    if cfg.common.wandb_project and importlib.util.find_spec("wandb") is None:
        raise BadInput("--wandb-project needs wandb; pip install 'alibi-fairseq[wandb]'.")


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
    """A wrong flag prints a usage message of 300 lines before the error, and ``--help`` says nothing
    of the options that ``--arch`` and ``--task`` add (no issue is known).
    """

    def wrapper(parse, parser, *arguments, **keywords):
        def error(message):
            raise BadInput(f"{message}; see --help.")

        parser.error = error
        # --help is printed before the options of model and task are known.
        parser.epilog = (
            "`alibi-fairseq train --help` lists the options of the models and tasks of "
            "alibi_fairseq as well."
        )
        return parse(parser, *arguments, **keywords)

    return wrap(options, "parse_args_and_arch", wrapper)


#: Flags whose keys have other names.
_NAMES = {
    "--task": "task._name",
    "--arch": "model._name",
    "--criterion": "criterion._name",
    "--optimizer": "optimizer._name",
    "--lr-scheduler": "lr_scheduler._name",
}
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def keys_in_messages() -> bool:
    """Under Hydra the user writes keys of a YAML file, and messages of fairseq and ours name flags."""
    if not sys.argv[0].endswith("hydra-train"):  # ours or fairseq's
        return False
    errors.wording = as_keys
    return True


def as_keys(sentence: str) -> str:
    """A sentence with fairseq's flags as keys; flags of other commands stay."""
    if not _FLAG.search(sentence):
        return sentence
    keys = keys_of_flags()
    return _FLAG.sub(lambda found: keys.get(found[0], found[0]), sentence)


def keys_of_flags() -> dict[str, str]:
    """``{"--max-tokens": "dataset.max_tokens", …}`` for all of fairseq's options and ours."""
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    groups = [(field.name, field.type) for field in fields(FairseqConfig)]
    groups += [("task", kind) for kind in TASK_DATACLASS_REGISTRY.values()]
    groups += [("model", kind) for kind in MODEL_DATACLASS_REGISTRY.values()]
    for group, registry in REGISTRIES.items():
        groups += [(group, kind) for kind in registry["dataclass_registry"].values()]
    keys = dict(_NAMES)
    for group, kind in groups:
        for field in fields(kind) if is_dataclass(kind) else ():
            keys.setdefault("--" + field.name.replace("_", "-"), f"{group}.{field.name}")
    return keys
