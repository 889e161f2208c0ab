"""Position methods by name. docs/adding-a-position-method.md describes how to add one."""

from __future__ import annotations

import re
from dataclasses import replace

from ..errors import PACKAGE, UserInputError, did_you_mean
from .alibi import Alibi, alibi_slopes
from .bam import Bam
from .base import (
    GateBias,
    NoPositions,
    PendingGates,
    PositionConfig,
    PositionMethod,
    QueryPositionBias,
    RelativeBias,
    Rotation,
    ScoreBias,
    token_positions,
)
from .cope import Cope
from .fire import Fire
from .fox import Fox
from .kerple import Kerple
from .layer_pattern import LayerPattern, cycle_over_layers, name_layers
from .learned import Learned
from .rotary import Rotary
from .sandwich import Sandwich
from .sinusoidal import Sinusoidal
from .t5 import T5
from .transformer_xl import TransformerXL
from .xpos import XPos

METHODS: dict[str, type[PositionMethod]] = {
    "alibi": Alibi,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "rotary": Rotary,
    "t5": T5,
    "transformer_xl": TransformerXL,
    "none": NoPositions,
    "kerple": Kerple,
    "sandwich": Sandwich,
    "xpos": XPos,
    "fox": Fox,
    "fire": Fire,
    "cope": Cope,
    "bam": Bam,
}
#: Fields of :class:`PositionConfig` that are options of particular methods.
METHOD_OPTIONS = tuple(dict.fromkeys(option for m in METHODS.values() for option in m.options))
#: Names of methods in papers and other libraries.
_ALIASES = {"rope": "rotary", "nope": "none", "sin": "sinusoidal", "t5_bias": "t5"}


def register_position_method(name: str, method: type[PositionMethod]) -> None:
    """Make a method available as ``--position-method name``.

    Raises:
        UserInputError: another method has that name, or the name has another meaning in options.
    """
    if not re.fullmatch(r"\w[\w.-]*", name, re.ASCII) or name in ("all", "later"):
        raise UserInputError(
            f"A position method cannot be named '{name}'. Use letters, digits, '_', '-', and '.', "
            "and not the words all and later."
        )
    if METHODS.get(name, method) is not method:
        raise UserInputError(
            f"A position method named '{name}' is registered already. Choose another name."
        )
    METHODS[name] = method


def is_plugin_method(name: str) -> bool:
    """Return True if a plugin registered the method."""
    return METHODS[name].__module__.partition(".")[0] != PACKAGE


def display_name(name: str) -> str | None:
    """Return the name that a plugin gives a method in tables and figures, or None.

    It is not inherited, because variants of a method would otherwise have the same name.
    """
    return vars(METHODS[name]).get("display_name")


def known_method(name: str) -> str:
    """Return the name of a method, or raise UserInputError if it is unknown."""
    if name not in METHODS:
        hint = did_you_mean(_ALIASES.get(name.lower(), name.lower()), METHODS)
        raise UserInputError(
            f"There is no position method '{name}'.{hint} Choose one of: {', '.join(METHODS)}. A "
            "method of a plugin requires --user-dir FOLDER."
        )
    return name


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
    for option in METHOD_OPTIONS:
        readers = [reader for reader, method in METHODS.items() if option in method.options]
        changed = getattr(config, option) != getattr(PositionConfig, option)
        if changed and not set(names).intersection(readers):
            flag = "--" + option.replace("_", "-")
            raise UserInputError(
                f"{flag} applies only to position method {' or '.join(readers)}, not to "
                f"'{name}'; drop one of the two."
            )
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


__all__ = [
    "METHODS",
    "METHOD_OPTIONS",
    "GateBias",
    "LayerPattern",
    "PendingGates",
    "QueryPositionBias",
    "PositionConfig",
    "PositionMethod",
    "RelativeBias",
    "Rotation",
    "ScoreBias",
    "alibi_slopes",
    "build_position_method",
    "cycle_over_layers",
    "display_name",
    "is_plugin_method",
    "name_layers",
    "register_position_method",
    "token_positions",
]
