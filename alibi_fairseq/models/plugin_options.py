"""Options of the position methods of plugins, as options of every ``alibi_lm`` model."""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from hydra.core.config_store import ConfigStore

from ..errors import UserInputError
from ..positions import (
    METHODS,
    is_plugin_method,
    method_options,
    methods_with,
    on_registration,
)
from .config import with_method_options
from .language_model import AlibiLanguageModel

#: Names of options that were added.
_added: set[str] = set()


def add_options(method: str) -> None:
    """Add the options of a method to every size, as fairseq's ``register_model`` does.

    Raises:
        UserInputError: fairseq, the models, or another method have another option of that name.
    """
    for option in method_options(method).values():
        if _is_taken(option, method):
            raise UserInputError(
                f"The option '{option.name}' of the position method '{method}' has the name of "
                f"another option of fairseq-train. Rename it, for example to "
                f"{method}_{option.name}."
            )
    _added.update(method_options(method))
    for name, model in MODEL_REGISTRY.items():
        if issubclass(model, AlibiLanguageModel):
            replace_config(name, with_method_options(model.config, [method]))


def replace_config(name: str, config: type) -> None:
    """Replace the configuration class of a registered model."""
    model = MODEL_REGISTRY[name]
    model.config = config
    setattr(model, "__dataclass", config)  # where fairseq looks it up
    MODEL_DATACLASS_REGISTRY[name] = config
    node = config()
    node._name = name
    ConfigStore.instance().store(name=name, group="model", node=node, provider="fairseq")


def _is_taken(option: Field, method: str) -> bool:
    """Return True if the name has another meaning. Methods share options of equal defaults."""
    others = [other for other in methods_with(option.name) if other != method]
    if not others:
        return option.name in taken_names() - _added
    defaults = [method_options(other)[option.name].default for other in others]
    return any(
        type(default) is not type(option.default) or default != option.default
        for default in defaults
    )


def taken_names() -> set[str]:
    """Return the names of the options of fairseq and of the models."""
    names = {field.name for field in fields(AlibiLanguageModel.config)}
    for group in fields(FairseqConfig):
        if is_dataclass(group.type):
            names |= {field.name for field in fields(group.type)}
    return names


for method in METHODS:
    if is_plugin_method(method):
        add_options(method)
on_registration(add_options)
