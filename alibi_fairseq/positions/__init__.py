"""Position methods by name. docs/adding-a-position-method.md explains how to add one."""

from __future__ import annotations

import difflib

from ..errors import BadInput
from .alibi import Alibi, alibi_slopes
from .base import (
    METHOD_OPTIONS,
    PositionConfig,
    PositionMethod,
    RelativeBias,
    Rotation,
    ScoreBias,
    token_positions,
)
from .kerple import Kerple
from .learned import Learned
from .none import NoPositions
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
}


def register_position_method(name: str, method: type[PositionMethod]) -> None:
    """Make a method available as ``--position-method name``.

    Raises:
        ValueError: if another method has that name.
    """
    if METHODS.get(name, method) is not method:
        raise ValueError(f"A position method named '{name}' is registered already.")
    METHODS[name] = method


def build_position_method(name: str, config: PositionConfig) -> PositionMethod:
    """Construct a position method.

    Raises:
        BadInput: if there is no such method, or if an option is set that it does not use.
    """
    if name not in METHODS:
        nearest = difflib.get_close_matches(name, METHODS, n=1)
        hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
        raise BadInput(
            f"There is no position method '{name}'.{hint} Choose one of: {', '.join(METHODS)}."
        )
    check_options(name, config)
    return METHODS[name](config)


def check_options(name: str, config: PositionConfig) -> None:
    """Raises BadInput if an option is set that the method does not use."""
    for option in METHOD_OPTIONS:
        readers = [other for other, method in METHODS.items() if option in method.options]
        not_given = getattr(PositionConfig, option)
        if getattr(config, option) != not_given and name not in readers:
            flag = "--" + option.replace("_", "-")
            raise BadInput(
                f"{flag} applies only to position method {' or '.join(readers)}, not to "
                f"'{name}'; drop one of the two."
            )


__all__ = [
    "METHODS",
    "METHOD_OPTIONS",
    "PositionConfig",
    "PositionMethod",
    "RelativeBias",
    "Rotation",
    "ScoreBias",
    "alibi_slopes",
    "build_position_method",
    "register_position_method",
    "token_positions",
]
