"""Position methods by name. To add one: a new file with a subclass, and one line in ``METHODS``."""

from __future__ import annotations

import difflib

from ..errors import BadInput
from .alibi import Alibi, alibi_slopes
from .base import PositionConfig, PositionMethod, RelativeBias, Rotation, ScoreBias, token_positions
from .none import NoPositions
from .sinusoidal import Sinusoidal

METHODS: dict[str, type[PositionMethod]] = {
    "alibi": Alibi,
    "sinusoidal": Sinusoidal,
    "none": NoPositions,
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
    return METHODS[name](config)


__all__ = [
    "METHODS",
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
