"""Position methods by name. To add one: a new file with a subclass, and one line in ``METHODS``."""

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
    """Make a method from outside this package available as ``--position-method name``."""
    if METHODS.get(name, method) is not method:
        raise ValueError(f"A position method named '{name}' is registered already.")
    METHODS[name] = method


def build_position_method(name: str, config: PositionConfig) -> PositionMethod:
    """The method of that name for a model of that shape."""
    if name not in METHODS:
        nearest = difflib.get_close_matches(name, METHODS, n=1)
        hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
        raise BadInput(
            f"There is no position method '{name}'.{hint} Choose one of: {', '.join(METHODS)}."
        )
    check_options(name, config)
    return METHODS[name](config)


def check_options(name: str, config: PositionConfig) -> None:
    """Stop with a sentence where an option is given to a method that does not read it."""
    for option in METHOD_OPTIONS:
        readers = [other for other, method in METHODS.items() if option in method.options]
        not_given = getattr(PositionConfig, option)
        if getattr(config, option) != not_given and name not in readers:
            flag = "--" + option.replace("_", "-")
            raise BadInput(
                f"{flag} is an option of position method {' or '.join(readers)} and means nothing "
                f"to '{name}'; drop one of the two."
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
