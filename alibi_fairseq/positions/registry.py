"""Position methods by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import Field, fields

from ..errors import PACKAGE, UserInputError, did_you_mean
from .alibi import Alibi
from .bam import Bam
from .base import NoPositions, PositionMethod
from .cope import Cope
from .fire import Fire
from .fox import Fox
from .grape import GrapeAQK
from .inkling import Inkling
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
    "grape_a_qk": GrapeAQK,
    "inkling": Inkling,
}
_listeners: list[Callable[[str], None]] = []
#: Names of methods in papers and other libraries.
_ALIASES = {"rope": "rotary", "nope": "none", "sin": "sinusoidal", "t5_bias": "t5"}


def register_position_method(name: str, method: type[PositionMethod]) -> None:
    """Make a method available as ``--position-method name``.

    Args:
        name: name of letters, digits, ``_``, ``-``, and ``.``, not ``all`` or ``later``.
        method: class of the method.

    Raises:
        ValueError: another method has that name.
    """
    if METHODS.get(name, method) is not method:
        raise ValueError(
            f"A position method named '{name}' is registered already. Choose another name."
        )
    METHODS[name] = method
    for listener in _listeners:
        listener(name)


def on_registration(listener: Callable[[str], None]) -> None:
    """Call a function with the name of each method that is registered from now on."""
    _listeners.append(listener)


def is_plugin_method(name: str) -> bool:
    """Return True if a plugin registered the method."""
    return METHODS[name].__module__.partition(".")[0] != PACKAGE


def display_name(name: str) -> str | None:
    """Return the name that a plugin gives a method in tables and figures, or None.

    It is not inherited, because variants of a method would otherwise have the same name.
    """
    return vars(METHODS[name]).get("display_name")


class UnknownMethodError(UserInputError):
    """Error of a name that no position method has. It may be a plugin's that is not imported."""


def known_method(name: str) -> str:
    """Return the name of a method, or raise UnknownMethodError."""
    if name not in METHODS:
        hint = did_you_mean(_ALIASES.get(name.lower(), name.lower()), METHODS)
        raise UnknownMethodError(
            f"There is no position method '{name}'.{hint} Choose one of: {', '.join(METHODS)}. A "
            "method of a plugin requires --user-dir FOLDER, or in Python an import of the plugin."
        )
    return name


def check_used(options: Iterable[str], methods: Collection[str]) -> None:
    """Raise UserInputError if an option applies to none of the methods of a model."""
    for option in options:
        readers = methods_with(option)
        if not set(methods).intersection(readers):
            flag = "--" + option.replace("_", "-")
            raise UserInputError(
                f"{flag} applies only to position method {' or '.join(readers)}, not to "
                f"'{','.join(dict.fromkeys(methods))}'. Remove one of the two."
            )


def method_options(name: str) -> dict[str, Field]:
    """Return the options of a method by name."""
    return {field.name: field for field in fields(METHODS[name].Options)}


def all_options() -> dict[str, Field]:
    """Return the options of all methods by name."""
    options: dict[str, Field] = {}
    for name in METHODS:
        options |= method_options(name)
    return options


def methods_with(option: str) -> list[str]:
    """Return the methods with an option."""
    return [name for name in METHODS if option in method_options(name)]
