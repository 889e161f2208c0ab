"""Checks that a training run resumes with the model, data, seed, and optimizer of its start.

fairseq loads the weights into whatever the command line describes. Shapes that differ are an error
there, but another position method or number of heads has tensors of the same shapes. A new training
from the weights of another may change the position method, but not the rest of the model.
"""

from __future__ import annotations

import argparse
import ast
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf

from ..errors import UserInputError
from ..positions import MethodSpec, all_options
from ..positions.options import with_length
from ..results.data_hashes import DICTIONARY_KEY, dictionary_digest
from .data_position import adapt_position
from .loading import check_ties

logger = logging.getLogger(__name__)

#: Options of the model that no tensor's shape depends on. Older checkpoints lack the options of
#: later methods. A checkpoint has tied weights under both names, so they fit an untied model too.
_MODEL_OPTIONS = (
    "position_method",
    "decoder_attention_heads",
    "activation_fn",
    "decoder_normalize_before",
    "score_scaling",
    "attention_window",
    "block_diagonal",
    "no_scale_embedding",
    "rms_norm_eps",
    "excluded_symbols",
    "share_decoder_input_output_embed",
    "tie_adaptive_weights",
    "tie_adaptive_proj",
)
#: Options that a new training from the weights must keep.
_KEPT_OPTIONS = (
    "decoder_attention_heads",
    "activation_fn",
    "decoder_normalize_before",
    "no_scale_embedding",
    "rms_norm_eps",
)
#: Options of optimizers that are part of their state, and their names there.
_OPTIMIZER_OPTIONS = {
    "weight_decay": "weight_decay",
    "adam_betas": "betas",
    "adam_eps": "eps",
    "momentum": "momentum",
}
#: Value of ``alibi_slopes`` that names the seed, with which random slopes change.
_RANDOM_SLOPES = "random --seed"


def compared_options() -> list[str]:
    """Return the names of the options that are compared, including options of position methods."""
    return [*_MODEL_OPTIONS, *all_options()]


_ADVICE = (
    "Use the options and data it was trained with, or start a new run from its weights with "
    "--finetune-from-model and another --save-dir."
)


class _Loading(NamedTuple):
    """Trainer whose checkpoint is being loaded, and what it restores.

    Attributes:
        trainer: fairseq's trainer.
        resumes: True if the training of the checkpoint resumes.
        restores_position: True if the training resumes at the checkpoint's position in the data.
    """

    trainer: Any
    resumes: bool
    restores_position: bool


_loading: _Loading | None = None


@contextmanager
def loading_into(trainer, resumes: bool, restores_position: bool = True) -> Iterator[None]:
    """Make the functions of this module compare checkpoints read in the block with a trainer.

    Args:
        trainer: fairseq's trainer.
        resumes: False if a new training starts from the weights, whose positions may differ.
        restores_position: False if the data is read from the first epoch on.
    """
    global _loading
    _loading = _Loading(trainer, resumes, restores_position)
    try:
        yield
    finally:
        _loading = None


def check_same_model(state: dict, path: str) -> None:
    """Compare a checkpoint that has just been read with the trainer that it is loaded into, if any.

    Raises:
        UserInputError: an option, the dictionary, or the tied weights differ.
    """
    if _loading is None:
        return
    trainer = _loading.trainer
    _check_options(state, trainer, path, _loading.resumes)
    if _loading.resumes:
        _check_stock_method(state.get("cfg"), trainer.cfg, path)
        _check_same_training(state.get("cfg"), trainer.cfg, path)
        _check_same_optimizer(state.get("cfg"), trainer.cfg, path)
        _check_optimizer_options(state.get("last_optimizer_state"), trainer.cfg, path)
    check_ties(state["model"], trainer.get_model(), path)
    checkpoint_digest = (state.get("task_state") or {}).get(DICTIONARY_KEY)
    data_digest = dictionary_digest(trainer.task.source_dictionary)
    if checkpoint_digest and checkpoint_digest != data_digest:
        advice = _ADVICE if _loading.resumes else "Use the dict.txt it was trained with."
        raise UserInputError(
            f"{path} was trained with a different dictionary (SHA-256 {checkpoint_digest[:12]}…) "
            f"than the data's ({data_digest[:12]}…), so its token IDs mean other words. {advice}"
        )


def adapt_data_position(state: dict, path: str) -> None:
    """Convert the position in the data of a checkpoint that has just been read, if it is restored.

    Raises:
        UserInputError: the epoch has different batches than before, or another order of them.
    """
    if _loading is None or not _loading.restores_position or state.get("cfg") is None:
        return
    position = state["extra_state"]["train_iterator"]
    saved = _batch_options(state["cfg"])
    current = _batch_options(_loading.trainer.cfg)
    adapt_position(position, saved, current, path)


def _check_options(state: dict, trainer, path: str, resumes: bool) -> None:
    saved = _model_options(state.get("cfg"))
    current = _model_options(trainer.cfg)
    if "position_method" not in saved:  # a checkpoint of fairseq's transformer_lm
        current.pop("position_method", None)
    defaults = ARCH_MODEL_REGISTRY["alibi_lm"].config
    for option in compared_options():
        before = saved.get(option, getattr(defaults, option))
        if option not in current or before == current[option]:
            continue
        flag = "--" + option.replace("_", "-")
        difference = (
            f"{path} was trained with {flag} {before} and this command has {flag} {current[option]}"
        )
        reason = "which changes what the weights mean"
        if resumes:
            raise UserInputError(f"{difference}, {reason}. {_ADVICE}")
        if option in _KEPT_OPTIONS:
            raise UserInputError(f"{difference}, {reason}. Use the options it was trained with.")
        values = (str(before), str(current[option]))
        if all(value.startswith(_RANDOM_SLOPES) for value in values):
            seed = values[0].removeprefix(_RANDOM_SLOPES)
            raise UserInputError(
                f"{difference}, which draws different slopes. Pass --seed{seed}, or the slopes "
                "themselves as numbers."
            )
        logger.warning(difference)


def _check_stock_method(saved_cfg, cfg, path: str) -> None:
    """Compare the position methods if the checkpoint or this command has a ``transformer_lm``.

    The options of fairseq's model differ from ours, but its weights have the same names and shapes.
    """
    saved = _group(saved_cfg, "model")
    current = _group(cfg, "model")
    if "position_method" in saved and "position_method" in current:
        return  # compared as an option
    before = _position_method(saved)
    now = _position_method(current)
    if before is not None and now is not None and before != now:
        raise UserInputError(
            f"{path} was trained with the position method {before.notation} and this command has "
            f"{now.notation}, which changes what the weights mean. {_ADVICE}"
        )


def _position_method(options: dict) -> MethodSpec | None:
    """Return the position method of a model of ours or a ``transformer_lm``; None for another."""
    if "position_method" in options or "no_token_positional_embeddings" in options:
        return MethodSpec.from_options(argparse.Namespace(**options))
    return None


def _check_same_training(saved_cfg, cfg, path: str) -> None:
    """Raise UserInputError if the save folder has a training run of another length or seed.

    A checkpoint of another folder may be continued with both, and so may one whose position in the
    data is discarded.
    """
    options = cfg.get("checkpoint")
    if options is None or options.reset_dataloader:
        return
    if Path(path).parent.resolve() != Path(options.save_dir).resolve():
        return
    for group, option in (("task", "tokens_per_sample"), ("common", "seed")):
        now = _group(cfg, group).get(option)
        before = _group(saved_cfg, group).get(option, now)
        if before != now:
            flag = "--" + option.replace("_", "-")
            raise UserInputError(
                f"{path} was trained with {flag} {before} and this command has {flag} {now}, so "
                f"--save-dir has a different run. {_ADVICE}"
            )


def _check_same_optimizer(saved_cfg, cfg, path: str) -> None:
    """Raise UserInputError if the optimizer is another.

    fairseq compares only the outermost classes, which are the same for ``adam`` and ``fused_adam``
    in half precision.
    """
    now = _group(cfg, "optimizer").get("_name")
    before = _group(saved_cfg, "optimizer").get("_name", now)
    if before != now:
        raise UserInputError(
            f"{path} was trained with --optimizer {before} and this command has --optimizer {now}, "
            f"which cannot continue from its state. {_ADVICE}"
        )


def _check_optimizer_options(saved: dict | None, cfg, path: str) -> None:
    """Compare the optimizer's options with those in its state, with which fairseq resumes.

    ``FairseqOptimizer.load_state_dict`` takes all but the learning rate from the state, except
    what ``--optimizer-overrides`` names.

    Raises:
        UserInputError: an option would have no effect, although the record would contain it.
    """
    groups = (saved or {}).get("param_groups")
    if not groups:
        return
    options = _group(cfg, "optimizer")
    overrides = ast.literal_eval(cfg.checkpoint.optimizer_overrides)
    for option, name in _OPTIMIZER_OPTIONS.items():
        if option not in options or name not in groups[0] or name in overrides:
            continue
        before = _plain_number(groups[0][name])
        now = _plain_number(options[option])
        if before != now:
            flag = "--" + option.replace("_", "-")
            raise UserInputError(
                f"{path} was trained with {flag} {before} and this command has {flag} {now}, which "
                f"fairseq would ignore. Repeat {flag} {before}, or add "
                f"--optimizer-overrides \"{{'{name}': {now}}}\"."
            )


def _plain_number(value):
    """Return an option of an optimizer as a number or a tuple of numbers, also if it is a text."""
    if isinstance(value, str):
        value = ast.literal_eval(value)
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _group(cfg, name: str) -> dict:
    """Return the options of one of fairseq's groups as plain values; none if it is missing."""
    group = cfg.get(name) if cfg is not None else None
    if group is None:
        return {}
    if OmegaConf.is_config(group):
        group = OmegaConf.to_container(group, resolve=True, enum_to_str=True)
    values = group if isinstance(group, dict) else vars(group)
    options: dict[str, Any] = {}
    for option, value in values.items():
        options[option] = getattr(value, "value", value)
    return options


def _batch_options(cfg) -> dict:
    """Return the options that determine the batches of each process and of an update."""
    task = _group(cfg, "task")
    return {
        **_group(cfg, "dataset"),
        **_group(cfg, "distributed_training"),
        **_group(cfg, "optimization"),
        "task": task.get("_name"),
        "tokens_per_sample": task.get("tokens_per_sample"),
        "sample_break_mode": task.get("sample_break_mode"),
        "seed": _group(cfg, "common").get("seed"),
    }


def _model_options(cfg) -> dict:
    """Return the options of the model as plain values."""
    options = _group(cfg, "model")
    if options.get("alibi_slopes") == "random":  # drawn by the seed, with which they change
        options["alibi_slopes"] = f"{_RANDOM_SLOPES} {options.get('train_seed')}"
    if options.get("alibi_slopes") == "even":  # over the training length, with which they change
        options["alibi_slopes"] = f"even over {options.get('train_length')} tokens"
    if "rotary_scaling" in options:
        options["rotary_scaling"] = with_length(
            options["rotary_scaling"], options.get("train_length")
        )
    return options
