"""Position methods by name. docs/adding-a-position-method.md explains how to add one."""

from __future__ import annotations

from ..errors import BadInput, did_you_mean
from .alibi import Alibi, alibi_slopes
from .bam import Bam
from .base import (
    GateBias,
    NoPositions,
    PendingGates,
    PlaceBias,
    PositionConfig,
    PositionMethod,
    RelativeBias,
    Rotation,
    ScoreBias,
    token_positions,
)
from .cope import Cope
from .fire import Fire
from .fox import Fox
from .kerple import Kerple
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
#: Other names that papers and libraries give them.
_ALSO_CALLED = {"rope": "rotary", "nope": "none", "sin": "sinusoidal", "t5_bias": "t5"}


def register_position_method(name: str, method: type[PositionMethod]) -> None:
    """Make a method available as ``--position-method name``.

    Raises:
        ValueError: if another method has that name.
    """
    if METHODS.get(name, method) is not method:
        raise ValueError(f"A position method named '{name}' is registered already.")
    METHODS[name] = method


def known_method(name: str) -> str:
    """The name; raises BadInput if there is no such method."""
    if name not in METHODS:
        hint = did_you_mean(_ALSO_CALLED.get(name.lower(), name.lower()), METHODS)
        raise BadInput(
            f"There is no position method '{name}'.{hint} Choose one of: {', '.join(METHODS)}. A "
            "method of a plugin requires --user-dir FOLDER."
        )
    return name


def build_position_method(name: str, config: PositionConfig) -> PositionMethod:
    """Raises BadInput if there is no such method, or if an option is set that it does not use."""
    known_method(name)
    for option in METHOD_OPTIONS:
        readers = [other for other, method in METHODS.items() if option in method.options]
        if getattr(config, option) != getattr(PositionConfig, option) and name not in readers:
            flag = "--" + option.replace("_", "-")
            raise BadInput(
                f"{flag} applies only to position method {' or '.join(readers)}, not to "
                f"'{name}'; drop one of the two."
            )
    return METHODS[name](config)


__all__ = [
    "METHODS",
    "METHOD_OPTIONS",
    "GateBias",
    "PendingGates",
    "PlaceBias",
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
