"""Creation of the position method of a model."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UserInputError
from .base import PositionConfig, PositionMethod
from .layer_pattern import LayerPattern
from .registry import METHOD_OPTIONS, METHODS, check_used, known_method, option_default
from .spec import cycle_over_layers


def build_position_method(name: str, config: PositionConfig) -> PositionMethod:
    """Create a position method after validating its options.

    Args:
        name: name of a method, or several names separated by commas, repeated over the layers.
        config: model properties and options.

    Raises:
        UserInputError: the name is unknown, an option is set that none of the methods uses, or a
            method overrides members that cannot be combined.
    """
    layers = cycle_over_layers("--position-method", name, config.num_layers)
    names = [known_method(layer_name) for layer_name in dict.fromkeys(layers)]
    changed = [
        option for option in METHOD_OPTIONS if getattr(config, option) != option_default(option)
    ]
    check_used(changed, names)
    methods = {}
    for method_name in names:
        layer_config = replace(config, num_layers=layers.count(method_name))
        methods[method_name] = METHODS[method_name](layer_config)
        check_overrides(method_name, methods[method_name])
    if len(names) == 1:
        return methods[names[0]]
    return LayerPattern(config, layers, methods)


def check_overrides(name: str, method: PositionMethod) -> None:
    """Raise UserInputError if a method overrides members that cannot be combined."""

    def overrides(member: str) -> bool:
        return getattr(type(method), member) is not getattr(PositionMethod, member)

    # The bias of the gates takes the place of any other bias.
    if overrides("log_gates") and overrides("bias"):
        raise UserInputError(
            f"Position method '{name}' overrides log_gates and bias, but a method with gates has "
            "no other bias. Override one of the two."
        )
    # Only the new tokens have positions, but the keys include the memory.
    if method.memory_length > 0 and (overrides("embed") or overrides("rotation")):
        raise UserInputError(
            f"Position method '{name}' has a memory and overrides embed or rotation, whose "
            "positions exclude the memory. Act through bias, or set memory_length to 0."
        )
