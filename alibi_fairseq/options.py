"""Command-line options as fields of dataclasses."""

from __future__ import annotations

import math
from dataclasses import MISSING, Field, field, fields
from typing import Any


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """Return a dataclass field that is an option of a command.

    A field without a default is a positional argument, or an option with ``required=True``.

    Args:
        help: help text.
        default: value without the option.
        more: further arguments of ``add_argument``. ``flag`` names the option if its name differs
            from that of the field, and ``group`` is its heading in the help. The type is that of
            the annotation; a sequence takes several values.
    """
    return field(default=default, metadata={"help": help, **more})


def same_option(kind: type, name: str, group: str) -> Any:
    """Return a dataclass field that is an option of another class, under a heading of its own."""
    (declared,) = [each for each in fields(kind) if each.name == name]
    return field(default=declared.default, metadata={**declared.metadata, "group": group})


def option_flag(field: Field) -> str | None:
    """Return the flag of a field; None if it is no option, or only YAML can set it."""
    if "help" not in field.metadata:
        return None
    return field.metadata.get("flag", "--" + field.name.replace("_", "-"))


def yaml_key(help: str, default: Any = MISSING, **more: Any) -> Any:
    """Return a dataclass field that a YAML file can set, and that is no option itself.

    Args:
        help: description of the key.
        default: value without the key; a dictionary is copied.
        more: ``group``, the heading of the key; ``set_by``, the argument of ``compare`` that sets
            the key in its own way.
    """
    metadata = {"help": help, "flag": None, **more}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def names(text: str) -> list[str]:
    """Return ``valid,test`` as ["valid", "test"], each name once.

    Raises:
        ValueError: a name is empty.
    """
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise ValueError("must be names separated by commas")
    return list(dict.fromkeys(items))


def positive_integer(text: str) -> int:
    """Return a positive integer.

    Raises:
        ValueError: the text is anything else.
    """
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("must be a positive integer")
    return int(text)


def float_or_nan(text: object) -> float:
    """Return a number, or NaN, which is in no range, for any other text."""
    try:
        return float(str(text))
    except ValueError:
        return math.nan


def percentage(text: str) -> float:
    """Return a percentage above 0 and at most 25.

    Raises:
        ValueError: the text is anything else.
    """
    percent = float_or_nan(text)
    if not 0 < percent <= 25:
        raise ValueError("must be a percentage above 0 and at most 25")
    return percent
