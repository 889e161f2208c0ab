"""Notation of a model's position methods and their options, in one word.

The notation is ``METHOD[+METHOD…][/OPTION=VALUE…]``. Plus signs separate the methods of the layers,
and the layers' values of an option. ``fairseq-train`` has commas there. Examples:

- ``rotary+rotary+rotary+none``: rotation in three of four layers
- ``rotary/p_rope=0.75``: an option
- ``rotary+none/attention_window=64+0``: a window of 64 tokens in every other layer
"""

from __future__ import annotations

from ..attention.score_scale import SCORE_SCALINGS
from ..errors import UserInputError
from ..positions import METHOD_OPTIONS, PositionConfig, known_method

#: Options of :class:`PositionConfig` that the comparison itself sets.
_SET_BY_COMPARISON = ("mem_len", "clamp_learned_positions")
#: Options that the notation accepts.
OPTIONS = [option for option in METHOD_OPTIONS if option not in _SET_BY_COMPARISON]
OPTIONS += ["attention_window", "score_scaling"]


def check_notation(notation: str) -> str:
    """Return the notation of a model after validating its syntax.

    Building the position method checks the values, which depend on the size of the model.

    Raises:
        UserInputError: there is no such method or option, or a value has the wrong type.
    """
    methods, *settings = notation.split("/")
    layers = methods.split("+")
    for method in layers:
        known_method(method)
    options = _parse_settings(notation, settings)
    # These two belong to no position method.
    windows = options.pop("attention_window", "0").split(",")
    if not all(window.isdecimal() for window in windows):
        raise UserInputError(
            f"attention_window of '{notation[:60]}' must be a number of tokens of at least 0, or "
            "several separated by plus signs."
        )
    scaling = options.pop("score_scaling", "none")
    if scaling not in SCORE_SCALINGS:
        raise UserInputError(
            f"score_scaling of '{notation[:60]}' must be one of {', '.join(SCORE_SCALINGS)}."
        )
    _check_types(notation, options)
    return notation


def _parse_settings(notation: str, settings: list[str]) -> dict[str, str]:
    """Return the values of ``OPTION=VALUE`` by option, with commas between the layers' values."""
    options = {}
    for setting in settings:
        option, _, value = setting.partition("=")
        if option not in OPTIONS or not value:
            raise UserInputError(
                f"Method '{notation[:60]}' has '{setting[:60]}', which is not OPTION=VALUE with "
                f"one of these options: {', '.join(OPTIONS)}. Correct or remove it."
            )
        options[option] = value.replace("+", ",")
    return options


def _check_types(notation: str, options: dict[str, str]) -> None:
    """Raise UserInputError if the value of an option is not a number but should be one."""
    for option, value in options.items():
        kind = type(getattr(PositionConfig, option))
        try:
            kind(value)
        except ValueError as error:
            raise UserInputError(
                f"{option} of '{notation[:60]}' must be a number, not '{value[:60]}'."
            ) from error


def training_flags(notation: str) -> list[str]:
    """Return the options of ``fairseq-train`` that the notation stands for."""
    methods, *settings = notation.split("/")
    flags = ["--position-method", methods.replace("+", ",")]
    for setting in settings:
        option, _, value = setting.partition("=")
        flags += ["--" + option.replace("_", "-"), value.replace("+", ",")]
    return flags


def method_of(notation: str) -> str:
    """Return the methods without options, such as ``rotary+none``."""
    return notation.partition("/")[0]


def folder_name(notation: str) -> str:
    """Return the notation as part of a folder's name, without slashes and colons.

    fairseq splits paths at colons.
    """
    return notation.replace("/", "-").replace(":", "-")
