"""Validation of the options stored in a checkpoint, before anything is built from them.

fairseq evaluates some options as Python code, takes names of classes and paths from others, and
trusts all of them. A checkpoint may be untrusted. Every option must therefore be a plain value.
Options of the model must have the type and form that its dataclass declares. A name may select only
one of our components, one of a plugin that the user named, or fairseq's plain language model.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import typing
from enum import Enum

from fairseq import criterions, tasks
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import DictConfig, ListConfig, OmegaConf

from ..errors import UserInputError
from ..positions import METHODS, is_plugin_method
from ..positions.spec import split_at_commas

#: Text encoders that evaluate no code.
ENCODERS = {
    "sentencepiece",
    "subword_nmt",
    "fastbpe",
    "bytes",
    "characters",
    "byte_bpe",
    "gpt2",
    "bert",
    "moses",
    "nltk",
    "space",
}
#: fairseq's losses for language models.
CRITERIONS = (
    "cross_entropy",
    "adaptive_loss",
    "label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy_with_rdrop",
)
#: Options of the model and the task that hold a path.
PATHS = ("data", "save_dir", "tensorboard_logdir", "plasma_path", "user_dir")
#: Form of the text in options that fairseq evaluates, and in all others.
NUMBERS = re.compile(r"[\d\s,\[\]()]*")
WORDS = re.compile(r"[\w.,:+/ -]*")
#: Largest size of anything in a model.
LARGEST = 2**31
#: Largest seed that PyTorch takes.
LARGEST_SEED = 2**64


def check_options(cfg, path) -> None:
    """Validate fairseq's configuration as a checkpoint stores it, with the user's overrides.

    Raises:
        UserInputError: an option may do more than describe a language model.
    """
    try:
        groups = plain_values(cfg)
        check_values(groups)
    except ValueError as error:
        raise UserInputError(
            f"The options in {path} do not describe a language model that can be loaded safely: "
            f"{error}."
        ) from error
    _check_plugin_options(groups.get("model"), path)


def _check_plugin_options(model, path) -> None:
    """Raise UserInputError if a plugin's method has lost an option, whose value fairseq drops."""
    if not isinstance(model, dict):
        return
    names = split_at_commas(str(model.get("position_method")))
    if not any(name in METHODS and is_plugin_method(name) for name in names):
        return
    dataclass = MODEL_DATACLASS_REGISTRY.get(model.get("_name"))
    if dataclass is None:
        return
    known = {"_name", "arch", *dataclass.__dataclass_fields__}
    for option, value in model.items():
        if option not in known:
            raise UserInputError(
                f"{path} was trained with {option} = {value}, an option that the plugin no longer "
                "has, so the model would be a different one. Restore it, or use the earlier "
                "version of the plugin."
            )


def check_values(groups: dict) -> None:
    """Raise ValueError unless a configuration of plain values can be loaded safely."""
    for group, options in groups.items():
        for name in component_names(group, options):
            check_component(group, name)
            if group == "model" and isinstance(options, dict):
                check_model(name, options)
        if group in ("model", "task") and isinstance(options, dict):
            check_words(options)


def plain_values(value):
    """Return a configuration as dictionaries, lists, and scalars.

    Raises:
        ValueError: it holds anything else.
    """
    if isinstance(value, (DictConfig, ListConfig)):
        value = OmegaConf.to_container(value, resolve=False)
    if isinstance(value, argparse.Namespace):
        value = vars(value)
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, dict):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if isinstance(value, str) and "${" in value:
        raise ValueError(f"{value[:60]!r} refers to something outside of the checkpoint")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(f"they hold a {type(value).__name__}")


def component_names(group: str, options) -> list[str]:
    """Return every name by which fairseq may look up the component of a group of options.

    fairseq uses plain text as the name. The name of a model may be ``arch`` or the only key. The
    name of a task may be ``task``, which takes precedence over ``_name``.
    """
    if group not in ("model", "task", "criterion", "bpe", "tokenizer"):
        return []
    if isinstance(options, dict):
        values = [options.get(key) for key in ("_name", "arch", group)]
        if group == "model" and not any(values[:2]) and len(options) == 1:
            values += options
    else:
        values = [options]
    names = []
    for value in values:
        if value is None:
            continue
        if not isinstance(value, str):
            raise ValueError(f"the name of the {group} is {str(value)[:60]!r}")
        names.append(value)
    return names


def check_component(group: str, name: str) -> None:
    """Raise ValueError for a component that is neither ours, a plugin's, nor safe."""
    if group in ("bpe", "tokenizer"):
        if name not in ENCODERS:
            raise ValueError(f"{group} '{name}' is not one of {', '.join(sorted(ENCODERS))}")
        return
    registries: dict[str, dict] = {
        "model": {**MODEL_REGISTRY, **ARCH_MODEL_REGISTRY},
        "task": tasks.TASK_REGISTRY,
        "criterion": criterions.CRITERION_REGISTRY,
    }
    cls = registries[group].get(name)
    safe = cls in (TransformerLanguageModel, LanguageModelingTask) or name in CRITERIONS
    if cls is not None and cls.__module__.split(".")[0] == "fairseq" and not safe:
        raise ValueError(f"{group} '{name}' is another one of fairseq's")


def check_model(name: str, options: dict) -> None:
    """Raise ValueError unless a model's options have the types that its dataclass declares."""
    if _model_class(name) is None:
        raise ValueError(f"there is no model '{name}'; name a plugin that has it with --user-dir")
    types = declared_types(name)
    for option, value in options.items():
        if option in types and value is not None:
            check_type(option, value, types[option])


def declared_types(name: str) -> dict[str, typing.Any]:
    """Return the types that a model's dataclass declares for its options, by option."""
    dataclass = MODEL_DATACLASS_REGISTRY.get(name)
    dataclass = dataclass or getattr(_model_class(name), "__dataclass", None)
    return typing.get_type_hints(dataclass) if dataclasses.is_dataclass(dataclass) else {}


def _model_class(name: str) -> type | None:
    """Return the class of a registered model or architecture, or None without one."""
    return ARCH_MODEL_REGISTRY.get(name) or MODEL_REGISTRY.get(name)


def check_type(option: str, value, declared) -> None:
    """Raise ValueError unless a value has the type of its field."""
    members = typing.get_args(declared) or (declared,)  # several for a Union, such as Optional
    types = [member for member in members if isinstance(member, type)]
    if declared is typing.Any or not types:
        return
    if option.endswith("_cutoff") and isinstance(value, list):
        fits = all(type(item) is int and 0 < item < LARGEST for item in value)
    elif isinstance(value, str):
        fits = any(issubclass(t, (str, Enum)) for t in types)
    elif isinstance(value, bool):
        fits = bool in types
    elif float in types:  # the comparison is false for NaN and infinity
        fits = isinstance(value, (int, float)) and abs(value) <= sys.float_info.max
    else:
        limit = LARGEST_SEED if option.endswith("seed") else LARGEST
        fits = int in types and isinstance(value, int) and abs(value) < limit
    if not fits:
        kinds = [member.__name__ for member in types if member is not type(None)]
        kind = kinds[0] if kinds else "value"
        raise ValueError(f"{option} is {str(value)[:60]!r}, which is no {kind}")


def check_words(options: dict) -> None:
    """Raise ValueError unless text is numbers where fairseq evaluates it, and words elsewhere."""
    for option, value in options.items():
        if not isinstance(value, str) or option in PATHS:
            continue
        if option.endswith("xformers_att_config"):
            raise ValueError(f"{option} is set")
        evaluated = option.endswith(("_cutoff", "_to_keep", "character_filters"))
        form = NUMBERS if evaluated else WORDS
        if value and not form.fullmatch(value):
            raise ValueError(f"{option} is {value[:60]!r}")
