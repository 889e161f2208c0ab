"""Overrides of values in the ``config.json`` of a model.

They replace values of the file, not of the completed configuration, which already has values
that transformers derives from others, such as ``layer_types``. An override without an effect is
rejected.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.utils import logging as transformers_logging

from ..errors import UserInputError
from .configuration_alibi_lm import AlibiLmConfig
from .positions_alibi_lm import check_rotary_parameters

#: Position methods for which a value of AlibiLmConfig has an effect. The memory of Transformer-XL
#: has none, because each window is computed separately.
METHODS_OF_VALUES: dict[str, tuple[str, ...]] = {
    "alibi_scale": ("alibi",),
    "alibi_bias_max": ("alibi",),
    "clamp_learned_positions": ("learned",),
    "rotary_parameters": ("rotary", "xpos"),
    "memory_length": (),
}


def override_config(
    config: PreTrainedConfig, content: dict, overrides: dict[str, Any], file: Path
) -> PreTrainedConfig:
    """Return a configuration with overrides, which transformers completes and validates.

    Args:
        config: configuration without overrides.
        content: content of ``config.json``.
        overrides: values by name.
        file: path of ``config.json``, for errors.

    Raises:
        UserInputError: the configuration has no such value, or it would have no effect.
    """
    # Some values have a second name, such as hidden_size for n_embd of GPT-2.
    keys = {name: config.attribute_map.get(name, name) for name in overrides}
    changed = _replace_values(config, content, overrides, keys, file)
    overridden = type(config).from_dict(copy.deepcopy(changed))
    values = _config_values(overridden)
    for name, value in overrides.items():
        if not _contains(values.get(keys[name]), value):
            raise UserInputError(
                f"--model-overrides: '{name}' would have no effect, because transformers replaces "
                f"the value for the other values of {file}. Override these, too, or remove it."
            )
    if isinstance(overridden, AlibiLmConfig):
        _check_position_values(overridden, overrides)
    if isinstance(overrides.get("rope_parameters"), dict):
        _check_rope_parameters(overridden, overrides["rope_parameters"], values["rope_parameters"])
    for key in sorted(content.keys() - set(keys.values())):
        _check_derived_value(type(config), content, changed, key, file)
    return overridden


def _replace_values(
    config: PreTrainedConfig,
    content: dict,
    overrides: dict[str, Any],
    keys: dict[str, str],
    file: Path,
) -> dict:
    """Return the content of ``config.json`` with overrides.

    Args:
        keys: key of each name.

    Raises:
        UserInputError: the configuration has no such value.
    """
    completed = config.to_dict()
    known = {*completed, *config.attribute_map, "max_position_embeddings"}
    changed = copy.deepcopy(content)
    for name, value in overrides.items():
        if name not in known or name.startswith("_"):
            raise UserInputError(
                f"--model-overrides: {file} has no '{name}'. Correct the name, or remove the "
                "override."
            )
        key = keys[name]
        old = content.get(key, completed.get(key))
        if key == "rope_parameters":
            # Older files have other keys in its place, of which transformers prefers rope_scaling.
            old = completed.get(key)
            changed.pop("rope_scaling", None)
        for alias, target in config.attribute_map.items():
            if target == key:
                changed.pop(alias, None)
        changed[key] = _merge(old, value, name, file)
    return changed


def _check_position_values(config: AlibiLmConfig, overrides: dict[str, Any]) -> None:
    """Check that overrides have an effect on the positions of a model in our own format.

    Args:
        config: configuration with overrides.
        overrides: values by name.

    Raises:
        UserInputError: an override would have no effect.
    """
    method = config.position_method
    for name in overrides:
        if name in METHODS_OF_VALUES and method not in METHODS_OF_VALUES[name]:
            raise UserInputError(
                f"--model-overrides: '{name}' would have no effect on the evaluation of a model "
                f"with '{method}' positions. Remove it."
            )
    if method in METHODS_OF_VALUES["rotary_parameters"]:
        try:
            check_rotary_parameters(config.rotary_parameters or {})
        except ValueError as error:
            raise UserInputError(f"--model-overrides: {error}") from error


def _check_rope_parameters(
    config: PreTrainedConfig, overrides: dict[str, Any], parameters: dict[str, Any]
) -> None:
    """Check that a model of transformers uses the overridden parameters of its rotation.

    transformers' own validation only warns of other keys. It also knows no ``factor`` of the type
    ``proportional``, which has an effect, and accepts ``partial_rotary_factor`` in any model.

    Args:
        config: configuration with overrides.
        overrides: values by key, or an object of them for each type of layer.
        parameters: the complete object with overrides.

    Raises:
        UserInputError: an override would have no effect.
    """
    has_own_code = bool(getattr(config, "auto_map", None))
    if has_own_code or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    rope_type = parameters.get("rope_type", "default")
    classes = (type(config), MODEL_FOR_CAUSAL_LM_MAPPING[type(config)])
    sources = [inspect.getsource(sys.modules[part.__module__]) for part in classes]
    if rope_type in ROPE_INIT_FUNCTIONS:
        sources.append(inspect.getsource(ROPE_INIT_FUNCTIONS[rope_type]))
    for key, value in overrides.items():
        if isinstance(value, dict):
            _check_rope_parameters(config, value, parameters[key])
        elif value is not None and not any(f'"{key}"' in source for source in sources):
            raise UserInputError(
                f"--model-overrides: '{key}' of rope_parameters would have no effect on a "
                f"{config.model_type} model with rope_type '{rope_type}'. Correct the name, "
                "override rope_type, too, or remove it."
            )


def _check_derived_value(
    config_class: type[PreTrainedConfig], content: dict, changed: dict, key: str, file: Path
) -> None:
    """Check that a value of ``config.json`` does not hide the effect of overrides.

    Args:
        content, changed: content of ``config.json`` without and with overrides.
        key: key that is not overridden.

    Raises:
        UserInputError: transformers would derive another value if the key were left out.
    """
    derived = _derived_value(config_class, content, key)
    if derived is None or derived != content[key]:
        return
    if _derived_value(config_class, changed, key) not in (derived, None):
        raise UserInputError(
            f"--model-overrides changes values on which '{key}' depends, but {file} lists "
            f"'{key}'. Override '{key}' as well: null computes it from the other values."
        )


def _config_values(config: PreTrainedConfig) -> dict[str, Any]:
    """Return the values of a configuration as in JSON."""
    return json.loads(config.to_json_string(use_diff=False))


def _contains(value: Any, override: Any) -> bool:
    """Return True if a configuration has the value of an override; null stands for any value."""
    if override is None:
        return True
    if isinstance(value, dict) and isinstance(override, dict):
        return all(_contains(value.get(key), part) for key, part in override.items())
    return value == override


def _derived_value(config_class: type[PreTrainedConfig], content: dict, key: str) -> Any:
    """Return the value that transformers gives to a key of ``config.json`` if it is left out.

    It is None if the key cannot be left out.
    """
    others = {name: copy.deepcopy(value) for name, value in content.items() if name != key}
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        return _config_values(config_class.from_dict(others)).get(key)
    except Exception:  # transformers raises various exceptions for a missing value
        return None
    finally:
        transformers_logging.set_verbosity(verbosity)


def _merge(old: Any, new: Any, name: str, file: Path) -> Any:
    """Return a value of a configuration with an override. Objects are merged.

    Raises:
        UserInputError: transformers would ignore the override.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    has_layer_types = any(isinstance(value, dict) for value in old.values())
    ignored = set(new) - set(old) if has_layer_types else {"type"} & set(new)
    if ignored and not ignored & set(old):
        raise UserInputError(
            f"--model-overrides: '{min(ignored)}' of '{name}' would have no effect. Override "
            f"{' or '.join(old)}, which {file} has."
        )
    merged = dict(old)
    for key, value in new.items():
        merged[key] = _merge(old.get(key), value, key, file)
    return merged
