"""Position methods by name. docs/adding-a-position-method.md describes how to add one."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UserInputError, did_you_mean
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
        ValueError: if another method has that name.
    """
    if METHODS.get(name, method) is not method:
        raise ValueError(f"A position method named '{name}' is registered already.")
    METHODS[name] = method


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
        UserInputError: the name is unknown, or an option is set that none of the methods uses.
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
    if len(names) == 1:
        return METHODS[names[0]](config)
    methods = {}
    for method_name in names:
        layer_config = replace(config, num_layers=layers.count(method_name))
        methods[method_name] = METHODS[method_name](layer_config)
    return LayerPattern(config, layers, methods)


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
    "name_layers",
    "register_position_method",
    "token_positions",
]
