"""Record of a model, from fairseq's configuration of its training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.utils import safe_getattr
from omegaconf import OmegaConf

from ..positions import MethodSpec
from ..positions.plugin_sources import plugin_sha256
from ..positions.registry import all_options
from ..results.model import Model

_GROUPS = ("common", "dataset", "optimization", "checkpoint")
_COMPONENTS = ("criterion", "optimizer", "lr_scheduler")
# Options that are fields of the record, besides the options of the position method.
_FIELDS = {
    "attention_window",
    "position_method",
    "score_scaling",
    "seed",
    "tokens_per_sample",
    "train_length",
}
# Options that name the run or concern the machine: where files go, how often is logged, which
# checkpoints are deleted. Options that change the tokens of an update are not among them.
_IGNORED = {
    "aim_repo",
    "aim_run_hash",
    "azureml_logging",
    "batch_size_valid",
    "cpu",
    "data_buffer_size",
    "keep_best_checkpoints",
    "keep_interval_updates",
    "keep_last_epochs",
    "log_file",
    "log_format",
    "log_interval",
    "max_tokens_valid",
    "no_epoch_checkpoints",
    "no_last_checkpoints",
    "no_progress_bar",
    "num_workers",
    "save_dir",
    "stop_time_hours",
    "tensorboard_logdir",
    "user_dir",
    "wandb_project",
}


def describe_model(cfg: Any, model: Any, vocabulary: int, **facts: Any) -> Model:
    """Return the record of a fairseq model.

    Args:
        cfg: configuration of its training.
        model: the model.
        vocabulary: size of its dictionary.
        facts: more fields of the record.
    """
    method = MethodSpec.from_options(cfg.model)
    facts.setdefault("train_length", recorded_train_length(cfg))
    return Model(
        method=method,
        plugin_sha256=plugin_sha256(method.names),
        architecture=cfg.model._name,
        layers=len(model.decoder.layers),
        width=safe_getattr(cfg.model, "decoder_embed_dim", 512),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        vocabulary=vocabulary,
        seed=cfg.common.seed,
        **facts,
    )


def recorded_train_length(cfg: Any) -> int:
    """Return the training length that a training run's configuration records, in tokens.

    Only our models have it as an option.
    """
    return getattr(cfg.model, "train_length", None) or cfg.task.tokens_per_sample


def training_options(cfg: Any) -> dict[str, str]:
    """Return the options that determine a trained model, as text, by the name of their field.

    Options with fairseq's default are left out, except for the number of processes, and so are
    those that are fields of the record. The text of a flag is empty.

    Args:
        cfg: configuration of the training.
    """
    processes = cfg.distributed_training.distributed_world_size
    options = {"distributed_world_size": str(processes), "task": str(cfg.task._name)}
    unrecorded = {*_IGNORED, *_FIELDS, *all_options()}
    for group, defaults in _option_groups(cfg):
        name = cfg[group].get("_name")
        if group in _COMPONENTS and name is not None:
            options[group] = str(name)
        for field in dataclasses.fields(defaults):
            is_unrecorded = field.name in unrecorded or field.name.startswith("_")
            if is_unrecorded:
                continue
            default = _option_default(field)
            name = field.name
            if isinstance(default, str) and default.startswith("${"):
                # It is the value of another option, unless it was set. Hydra can set two options
                # of one name separately.
                if default.endswith(f".{name}}}"):
                    name = f"{group}_{name}"
                default = _referenced_value(cfg, group, default)
            value = cfg[group].get(field.name)
            if value != default:
                options[name] = _option_text(value)
    return dict(sorted(options.items()))


def _option_groups(cfg: Any) -> Iterator[tuple[str, Any]]:
    """Yield the groups of options that determine a model, each with the class of its defaults."""
    classes = get_type_hints(FairseqConfig)
    for group in _GROUPS:
        yield group, classes[group]
    name = cfg.model._name
    yield "model", MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY.get(name, name)]
    yield "task", TASK_DATACLASS_REGISTRY[cfg.task._name]
    for group in _COMPONENTS:
        component = cfg.get(group)
        name = None if component is None else component.get("_name")
        defaults = REGISTRIES[group]["dataclass_registry"].get(name)
        if defaults is not None:
            yield group, defaults


def _option_default(field: dataclasses.Field) -> Any:
    """Return the default of an option."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _referenced_value(cfg: Any, group: str, reference: str) -> Any:
    """Return the value that ``${optimization.lr}`` or, in the same group, ``${.lr}`` refers to."""
    path = reference.removeprefix("${").removesuffix("}")
    if path.startswith("."):
        path = group + path
    return OmegaConf.select(cfg, path)


def _option_text(value: Any) -> str:
    """Return the value of an option as on the command line; a flag that is set is empty."""
    if value is True:
        return ""
    if isinstance(value, (list, tuple)) or type(value).__name__ == "ListConfig":
        return ",".join(str(element) for element in value)
    return str(value)
