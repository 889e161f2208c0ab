"""Removal of the options that tests of plugins add to the models of the process."""

from __future__ import annotations

from fairseq.models import MODEL_REGISTRY

from alibi_fairseq.models import plugin_options
from alibi_fairseq.models.language_model import AlibiLanguageModel
from alibi_fairseq.positions import METHODS, all_options, is_plugin_method

#: Configurations of the models without options of plugins.
_CONFIGS = {
    name: model.config
    for name, model in MODEL_REGISTRY.items()
    if issubclass(model, AlibiLanguageModel)
}


def remove_options_of_removed_methods() -> None:
    """Give the models the options of the methods that are still registered."""
    if plugin_options._added <= set(all_options()):
        return
    plugin_options._added.clear()
    for name, config in _CONFIGS.items():
        plugin_options.replace_config(name, config)
    for method in METHODS:
        if is_plugin_method(method):
            plugin_options.add_options(method)
