"""Options of position methods: text and numbers of a command line as typed values.

The options of a method are the fields of a dataclass, each made by :func:`..options.option`. The
defaults are values of a command line, and ``parse`` makes them typed values: ``yarn:4:512`` becomes
``RotaryScaling(kind="yarn", factor=4, original_length=512)``.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from ..errors import UserInputError, unmet
from ..options import float_or_nan

#: Value of an option, as options of fairseq and JSON have it.
Value = bool | int | float | str

#: Values of ``alibi_slopes`` other than numbers.
SLOPE_KINDS = ("paper", "even", "trainable", "random")
#: Values of ``alibi_distance``.
DISTANCES = ("linear", "log")
#: Kinds of ``rotary_scaling``.
ROTARY_SCALINGS = ("pi", "ntk", "yarn", "llama3", "longrope")
#: Default limits by kind (RotaryScaling.few_turns and many_turns), in turns per original length.
TURNS = {"yarn": (1.0, 32.0), "llama3": (1.0, 4.0)}
#: Largest number of characters read from a file of slopes.
_MAX_CHARACTERS = 1 << 16


@dataclass(frozen=True)
class RotaryScaling:
    """Scaling of the rotation for longer input.

    Attributes:
        kind: one of ``ROTARY_SCALINGS``.
        factor: F, or None for the ratio of the lengths.
        original_length: L, the training length of the unscaled rotation in tokens; None: that of
            the model.
        few_turns, many_turns: limits of ``yarn`` and ``llama3``, see ``TURNS``.
        short_factors, long_factors: divisors of ``longrope``, one per pair.
    """

    kind: str
    factor: float | None
    original_length: int | None = None
    few_turns: float = 1.0
    many_turns: float = 32.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    @property
    def depends_on_key_count(self) -> bool:
        """True if a token's rotation depends on the number of tokens in the forward pass."""
        return self.factor is None or self.kind == "longrope"

    @property
    def text(self) -> str:
        """The value of ``rotary_scaling``."""
        parts = [self.kind, "dynamic" if self.factor is None else str(self.factor)]
        if self.original_length is not None:
            parts.append(str(self.original_length))
            if self.kind in TURNS:
                parts += [str(self.few_turns), str(self.many_turns)]
        return ":".join(parts)


def number(text: Value) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number") from None


def positive_number(text: Value) -> float:
    """Read a positive number."""
    value = float_or_nan(text)
    if not 0 < value < math.inf:
        raise ValueError("must be a positive number")
    return value


def above_one(text: Value) -> float:
    """Read a number above 1."""
    value = float_or_nan(text)
    if not 1 < value < math.inf:
        raise ValueError("must be a number above 1")
    return value


def fraction(text: Value) -> float:
    """Read a fraction above 0 and at most 1."""
    value = float_or_nan(text)
    if not 0 < value <= 1:
        raise ValueError("must be a fraction above 0 and at most 1")
    return value


def integer(text: Value) -> int:
    """Read an integer."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be an integer") from None


def count(text: Value) -> int:
    """Read an integer of at least 0."""
    value = integer(text)
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def positive_integer(text: Value) -> int:
    """Read an integer of at least 1."""
    value = integer(text)
    if value < 1:
        raise ValueError("must be 1 or more")
    return value


def flag(text: Value) -> bool:
    """Read true or false."""
    if isinstance(text, bool):
        return text
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def positive_or_none(text: Value) -> float | None:
    """Read a positive number, or ``none``."""
    if text == "none":
        return None
    try:
        return positive_number(text)
    except ValueError:
        raise ValueError("must be none or a positive number") from None


def read_distance(text: Value) -> str:
    """Read one of ``DISTANCES``."""
    if text not in DISTANCES:
        raise ValueError(f"must be {' or '.join(DISTANCES)}")
    return str(text)


def read_slope_divisor(text: Value) -> float | None:
    """Read the divisor ``alibi_scale``; ``dynamic`` is None, because it depends on the text."""
    if text == "none":
        return 1.0
    if text == "dynamic":
        return None
    try:
        return positive_number(text)
    except ValueError:
        raise ValueError("must be none, dynamic or a positive number") from None


def read_slopes(text: Value) -> str | tuple[float, ...]:
    """Read one of ``SLOPE_KINDS``, or slopes separated by commas or whitespace."""
    if text in SLOPE_KINDS:
        return str(text)
    values = tuple(float_or_nan(word) for word in str(text).replace(",", " ").split())
    if not values or not all(0 <= value < math.inf for value in values):
        raise ValueError(
            f"must be {', '.join(SLOPE_KINDS)} or one number per head, each positive or 0 (no "
            "bias; in YAML give the numbers themselves, separated by commas, and not a file)"
        )
    return tuple(abs(value) for value in values)  # without a negative zero


def names_slopes_file(value: str) -> bool:
    """Return True if a value of ``--alibi-slopes`` is the name of a file, not a kind or numbers."""
    return value not in SLOPE_KINDS and math.isnan(float_or_nan(value.partition(",")[0]))


def slopes_from_file(value: str) -> str:
    """Return a value of ``--alibi-slopes``, with the numbers of a file in place of its name.

    A model that stores them does not need the file again.
    """
    if not names_slopes_file(value):
        return value
    with open(value, encoding="utf-8") as file:
        text = file.read(_MAX_CHARACTERS)  # a device may never end
    return ",".join(text.replace(",", " ").split())


def read_factors(text: Value) -> tuple[float, ...]:
    """Read positive numbers separated by commas; none of them from ``none``."""
    if text == "none":
        return ()
    values = tuple(float_or_nan(word) for word in str(text).split(","))
    if not all(0 < value < math.inf for value in values):
        raise ValueError(
            "must be positive numbers separated by commas, one for each pair of rotated features"
        )
    return values


def read_rotary_scaling(text: Value) -> RotaryScaling | None:
    """Read ``none``, or KIND:F, KIND:F:L, or KIND:F:L:FEW:MANY."""
    if text == "none":
        return None
    kind, *values = str(text).split(":")
    scaling = _scaling(kind, values) if kind in ROTARY_SCALINGS else None
    if scaling is None or not _is_valid(scaling):
        raise ValueError(
            f"must be none, or one of {', '.join(ROTARY_SCALINGS)} with a factor of at "
            "least 1, such as yarn:4, or (not longrope) 'dynamic', such as ntk:dynamic, then "
            "optionally the length trained at before (yarn:4:512), and for yarn and llama3 the "
            "turns up to which a frequency is divided and from which on it is kept "
            "(llama3:8:8192:1:4)"
        )
    return scaling


def with_length(text: str, train_length: int | None) -> str:
    """Return a ``rotary_scaling`` with the length that it implies.

    The length of ``pi`` and ``ntk`` only matters with ``dynamic``. No ``dynamic`` scaling changes
    the rotation of a text as long as in training, so training runs at several lengths agree on it.
    """
    scaling = read_rotary_scaling(text)
    if scaling is None or scaling.original_length is not None or scaling.factor is None:
        return text
    return text if scaling.kind in ("pi", "ntk") else f"{text}:{train_length}"


def _scaling(kind: str, values: list[str]) -> RotaryScaling | None:
    """Return a scaling, or None if a value is missing, surplus, or no number."""
    if len(values) not in (1, 2, 4) or (len(values) == 4 and kind not in TURNS):
        return None
    few, many = TURNS.get(kind, (1.0, 32.0))
    try:
        factor = None if values[0] == "dynamic" else float(values[0])
        length = int(values[1]) if len(values) > 1 else None
        if len(values) == 4:
            few = float(values[2])
            many = float(values[3])
    except ValueError:
        return None
    return RotaryScaling(kind, factor, length, few, many)


def _is_valid(scaling: RotaryScaling) -> bool:
    """Return True if the numbers of a scaling are in their ranges."""
    shortest = 2 if scaling.kind == "longrope" else 1  # whose logarithm is a divisor
    length = scaling.original_length
    if length is not None and length < shortest:
        return False
    if not 0 < scaling.few_turns < scaling.many_turns < math.inf:
        return False
    if scaling.factor is None:
        return scaling.kind != "longrope"
    return 1 <= scaling.factor < math.inf


_PARSERS: dict[Any, Callable[[Value], Any]] = {float: number, int: integer, bool: flag, str: str}


def plain_type(field: Field) -> type:
    """Return the type of an option on a command line, which is that of its default."""
    return type(field.default)


def read_options(kind: type, values: Mapping[str, Value]) -> Any:
    """Return the options of a method as typed values.

    Args:
        kind: dataclass of the options.
        values: values of the options that are not defaults.

    Raises:
        UserInputError: a value has the wrong type, or is out of range.
    """
    hints = typing.get_type_hints(kind)
    typed = {}
    for field in fields(kind):
        value: Any = values.get(field.name, field.default)
        parse = field.metadata.get("parse") or _PARSERS[hints[field.name]]
        try:
            typed[field.name] = parse(value)
        except ValueError as problem:
            flag_name = "--" + field.name.replace("_", "-")
            raise UserInputError(f"{flag_name} {unmet(problem, value)}.") from None
    return kind(**typed)
